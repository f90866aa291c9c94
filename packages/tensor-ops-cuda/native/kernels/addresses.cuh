// The arrays of a call, and where a row of each begins.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device.cuh"
#include "launch/call.h"

namespace tensor_ops {

__device__ __noinline__ inline std::int64_t long_quotient(std::int64_t a, std::int64_t b) {
  return a / b;
}

// A division of 64 bits takes several times as long as one of 32 bits, and several times the code.
DEVICE std::int64_t quotient_of(std::int64_t a, std::int64_t b, bool is_short) {
  if (!is_short) return long_quotient(a, b);
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

constexpr std::int64_t kShortCount = std::int64_t{1} << 31;

// The arrays of a call, as kernels take them.
template <int kArrays>
struct Pointers {
  void* array[kArrays];

  explicit Pointers(const Call& call) { std::copy_n(call.array, kArrays, array); }
};

// The same with their rows.
template <int kArrays>
struct Arrays : Pointers<kArrays> {
  Rows rows;

  explicit Arrays(const Call& call) : Pointers<kArrays>(call), rows(call.rows) {}
};

// The addresses of element `first` of a row in every array.
template <int kArrays>
class RowAddresses {
 public:
  DEVICE RowAddresses(const Arrays<kArrays>& arrays, std::int64_t row, std::int64_t first = 0)
      : arrays_(arrays) {
    const Rows& rows = arrays.rows;
    const bool is_short = rows.count < kShortCount;
#pragma unroll
    for (int k = 0; k < kArrays; ++k) offset_[k] = first;
#pragma unroll 1
    for (int axis = rows.axes - 1; axis > 0; --axis) {
      const std::int64_t outer = quotient_of(row, rows.extent[axis], is_short);
      const std::int64_t index = row - outer * rows.extent[axis];
#pragma unroll
      for (int k = 0; k < kArrays; ++k) offset_[k] += index * rows.stride[k][axis];
      row = outer;
    }
#pragma unroll
    for (int k = 0; k < kArrays; ++k) offset_[k] += row * rows.stride[k][0];
  }

  // In array k, whose elements are of type Element, as an address of a T.
  template <class Element, class T = Element>
  DEVICE T* in(int k) const {
    return reinterpret_cast<T*>(static_cast<Element*>(arrays_.array[k]) + offset_[k]);
  }

 private:
  const Arrays<kArrays>& arrays_;
  std::int64_t offset_[kArrays];  // in elements
};

// The most bytes that one instruction loads or stores.
constexpr int kVectorBytes = 16;

// Every row of the first `arrays` arrays can be taken in vectors of `width` elements.
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
