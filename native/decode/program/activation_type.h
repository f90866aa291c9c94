// The type to which a token's activations are converted before a product with stored weights.
#pragma once

#include <cstddef>

namespace tensor_ops::decode {

// In kInt8 and kInt8x2, a block of 32 activations shares a scale d, and an activation is d * q or
// d * (q + q2 / 254), with q and q2 from -127 to 127. A block with an Inf or a NaN makes the
// results NaN.
enum class ActivationType { kFloat32, kInt8, kInt8x2, kBFloat16 };
constexpr std::size_t kActivationTypes = 4;
constexpr const char* kActivationNames[kActivationTypes] = {"float32", "int8", "int8x2",
                                                            "bfloat16"};

}  // namespace tensor_ops::decode
