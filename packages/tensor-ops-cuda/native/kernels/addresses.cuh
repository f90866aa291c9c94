// Where a row of an array begins.
#pragma once

#include <algorithm>
#include <cstdint>

#include "launch/call.h"

namespace tensor_ops {

__device__ __noinline__ inline std::int64_t long_quotient(std::int64_t a, std::int64_t b) {
  return a / b;
}

// Division of 64 bits takes several times as long, and several times the code.
__device__ __forceinline__ std::int64_t quotient_of(std::int64_t a, std::int64_t b, bool is_short) {
  if (!is_short) return long_quotient(a, b);
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

// In elements from the first of each array.
template <int kArrays>
struct RowOffsets {
  std::int64_t of[kArrays];

  __device__ __forceinline__ RowOffsets(const Rows& rows, std::int64_t row) {
    const bool is_short = rows.count < (std::int64_t{1} << 31);
#pragma unroll
    for (int k = 0; k < kArrays; ++k) of[k] = 0;
#pragma unroll 1
    for (int axis = rows.axes - 1; axis > 0; --axis) {
      const std::int64_t outer = quotient_of(row, rows.extent[axis], is_short);
      const std::int64_t index = row - outer * rows.extent[axis];
#pragma unroll
      for (int k = 0; k < kArrays; ++k) of[k] += index * rows.stride[k][axis];
      row = outer;
    }
#pragma unroll
    for (int k = 0; k < kArrays; ++k) of[k] += row * rows.stride[k][0];
  }
};

// What one instruction loads or stores.
constexpr int kVectorBytes = 16;

// Whether every row of the first `arrays` arrays can be taken in vectors of `width` elements.
inline bool fits_vectors(const Call& call, int arrays, std::int64_t width) {
  if (call.n % width != 0) return false;
  for (int k = 0; k < arrays; ++k) {
    const auto bytes = static_cast<std::uintptr_t>(width) * kItemSizes[call.array_dtype[k]];
    const auto alignment = std::min<std::uintptr_t>(bytes, kVectorBytes);
    if (reinterpret_cast<std::uintptr_t>(call.array[k]) % alignment != 0) return false;
    for (int axis = 0; axis < call.rows.axes; ++axis)
      if (call.rows.stride[k][axis] % width != 0) return false;
  }
  return true;
}

}  // namespace tensor_ops
