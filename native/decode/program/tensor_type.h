// How the rows of a tensor are stored, by the types of GGML that programs know, and those of a
// cache.
#pragma once

#include <cstddef>
#include <vector>

namespace tensor_ops::decode {

// A row is blocks of `block_columns` columns in `block_bytes` bytes each.
struct TensorType {
  const char* name;
  std::size_t block_columns, block_bytes;

  std::size_t row_bytes(std::size_t columns) const { return columns / block_columns * block_bytes; }
};

// Sorted by name; tensor_types.cpp has them.
const std::vector<TensorType>& tensor_types();

// The type in which a cache keeps keys and values.
// int8: each 32 elements of a head share a scale in float16.
enum class CacheType { kFloat32, kFloat16, kInt8 };

}  // namespace tensor_ops::decode
