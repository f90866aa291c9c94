// The supported dtypes, as NumPy has them.
#pragma once

#include "arrays/numpy.h"
#include "launch/run.h"

namespace tensor_ops {

inline constexpr const char* kDTypeNames[kDTypes] = {"float32", "float16", "bfloat16", "float64"};
inline constexpr std::size_t kItemSizes[kDTypes] = {4, 2, 2, 8};
inline constexpr const char kSupportedDTypes[] = "float32, float16, bfloat16 and float64";

// kDTypes for an unsupported one. Does not look at the byte order.
DType dtype_of(PyArray_Descr* descr);

inline bool is_half(DType dtype) { return kItemSizes[dtype] == 2; }

// A scalar type object is ml_dtypes.bfloat16.
bool is_bfloat16_type(PyTypeObject* type);

}  // namespace tensor_ops
