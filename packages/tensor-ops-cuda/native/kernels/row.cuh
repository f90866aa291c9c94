// A lane's share of a row, in registers.
#pragma once

#include <cstdint>

#include "kernels/elements.cuh"

namespace tensor_ops {

// Vector j of lane l is the row's vector j * lanes + l. What lies beyond the row is `rest`.
template <class Element, int kVectors, int kCount = kWidth<Element>>
struct RowShare {
  using R = Real<Element>;

  Packed<Element, kCount> vector[kVectors];

  // `whole` where the row is aligned and has whole vectors.
  __device__ __forceinline__ void load(const Element* row, int n, int lane, int lanes, bool whole,
                                       Element rest) {
    if (whole) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const int first = (j * lanes + lane) * kCount;
        if (first < n) {
          vector[j] = *reinterpret_cast<const Packed<Element, kCount>*>(row + first);
        } else {
#pragma unroll
          for (int i = 0; i < kCount; ++i) vector[j].element[i] = rest;
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const int first = (j * lanes + lane) * kCount;
#pragma unroll
        for (int i = 0; i < kCount; ++i)
          vector[j].element[i] = first + i < n ? row[first + i] : rest;
      }
    }
  }

  __device__ __forceinline__ R at(int j, int i) const { return real(vector[j].element[i]); }

  // Makes the compiler convert the elements anew: what they were converted to before, for a half
  // type, would take twice their registers while threads wait for each other.
  __device__ __forceinline__ void forget_conversions() {
    if constexpr (is_half<Element>) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) make_opaque(vector[j]);
    }
  }
};

template <class Element, int kCount>
__device__ __forceinline__ void store_part(const Packed<Element, kCount>& result, Element* row,
                                           int first, int n, bool whole) {
  if (whole) {
    if (first < n) *reinterpret_cast<Packed<Element, kCount>*>(row + first) = result;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (first + i < n) row[first + i] = result.element[i];
  }
}

template <class Element, int kCount>
__device__ __forceinline__ Packed<Element, kCount> load_part(const Element* row, int first, int n,
                                                             bool whole) {
  Packed<Element, kCount> part{};
  if (whole) {
    if (first < n) part = *reinterpret_cast<const Packed<Element, kCount>*>(row + first);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (first + i < n) part.element[i] = row[first + i];
  }
  return part;
}

}  // namespace tensor_ops
