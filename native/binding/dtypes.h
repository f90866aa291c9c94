// NumPy arrays as arguments: their dtype, and what is refused of them.
#pragma once

#include "binding/python.h"
#include "declaration/dtype.h"

namespace tensor_ops {

// kDTypes for an unsupported one. Does not look at the byte order.
DType dtype_of(PyArray_Descr* descr);

// The type of a NumPy scalar is ml_dtypes.bfloat16.
bool is_bfloat16_type(PyTypeObject* type);

// The dtype of an array argument, kDTypes for an unsupported one. Throws TypeError, naming op and
// argument, for masked arrays and for supported dtypes in foreign byte order.
DType checked_dtype(const char* op, const char* name, PyArrayObject* array, bool is_output);

}  // namespace tensor_ops
