// The supported dtypes, as NumPy has them.
#pragma once

#include "arrays/python.h"
#include "launch/call.h"

namespace tensor_ops {

// kDTypes for an unsupported one. Does not look at the byte order.
DType dtype_of(PyArray_Descr* descr);

// A scalar type object is ml_dtypes.bfloat16.
bool is_bfloat16_type(PyTypeObject* type);

}  // namespace tensor_ops
