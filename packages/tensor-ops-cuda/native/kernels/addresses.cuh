// Where a row of an array begins.
#pragma once

#include <cstdint>

#include "launch/call.h"

namespace tensor_ops {

// In elements from the array's first.
__device__ __forceinline__ std::int64_t row_offset(const Rows& rows, int array, std::int64_t row) {
  std::int64_t offset = 0;
  for (int axis = rows.axes - 1; axis > 0; --axis) {
    const std::int64_t outer = row / rows.extent[axis];
    offset += (row - outer * rows.extent[axis]) * rows.stride[array][axis];
    row = outer;
  }
  return offset + row * rows.stride[array][0];
}

template <class Element>
__device__ __forceinline__ Element* row_at(void* array, const Rows& rows, int number,
                                           std::int64_t row) {
  return static_cast<Element*>(array) + row_offset(rows, number, row);
}

// Whether every row of the first `arrays` arrays can be taken in vectors of `width` elements.
inline bool fits_vectors(const Call& call, int arrays, std::int64_t width) {
  if (call.n % width != 0) return false;
  const std::int64_t bytes = width * static_cast<std::int64_t>(kItemSizes[call.dtype]);
  for (int k = 0; k < arrays; ++k) {
    if (reinterpret_cast<std::uintptr_t>(call.array[k]) % static_cast<std::uintptr_t>(bytes) != 0)
      return false;
    for (int axis = 0; axis < call.rows.axes; ++axis)
      if (call.rows.stride[k][axis] % width != 0) return false;
  }
  return true;
}

}  // namespace tensor_ops
