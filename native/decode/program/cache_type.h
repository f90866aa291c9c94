// The type in which a cache keeps keys and values.
#pragma once

namespace tensor_ops::decode {

// int8: each 32 elements of a head share a scale in float16.
enum class CacheType { kFloat32, kFloat16, kInt8 };

}  // namespace tensor_ops::decode
