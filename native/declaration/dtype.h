// The dtypes of array elements.
#pragma once

#include <cstddef>

namespace tensor_ops {

enum DType { kFloat32, kFloat16, kBFloat16, kFloat64, kDTypes };

inline constexpr const char* kDTypeNames[kDTypes] = {"float32", "float16", "bfloat16", "float64"};
inline constexpr std::size_t kItemSizes[kDTypes] = {4, 2, 2, 8};
inline constexpr char kSupportedDTypes[] = "float32, float16, bfloat16 and float64";

// Elements of such a dtype are computed in float32, and may stand beside float32 parameters.
constexpr bool is_half_dtype(DType dtype) { return dtype == kFloat16 || dtype == kBFloat16; }

}  // namespace tensor_ops
