// The element types: how elements lie in memory, and the numbers that are computed with.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/addresses.cuh"
#include "launch/call.h"

namespace tensor_ops {

struct Float16 {
  unsigned short bits;
};
struct BFloat16 {
  unsigned short bits;
};

// The type to compute in.
template <class Element>
using Real = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <class Element>
constexpr bool is_half = sizeof(Element) == 2;

DEVICE float real(float x) { return x; }
DEVICE double real(double x) { return x; }
DEVICE float real(Float16 x) { return __half2float(__ushort_as_half(x.bits)); }
DEVICE float real(BFloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

template <class Element>
DEVICE Element rounded_to(Real<Element> x) {
  return x;
}
template <>
DEVICE Float16 rounded_to<Float16>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
template <>
DEVICE BFloat16 rounded_to<BFloat16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

template <class Element>
constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(Element));

// Vectors of float32 beside vectors of as many half elements are wider, and take several
// instructions.
template <class Element, int kCount>
struct alignas(std::min<std::size_t>(kCount * sizeof(Element), kVectorBytes)) Packed {
  Element element[kCount];
};

// Loads kCount elements of a row of n, from `first` on; what lies beyond the row is `rest`. `whole`
// says that the row is aligned and consists of whole vectors. A result by value would be taken
// apart into elements, which takes more registers.
template <class Element, int kCount>
DEVICE void load_part(Packed<Element, kCount>& part, const Element* row, int first, int n,
                      bool whole, Element rest = {}) {
  if (whole) {
    if (first < n) {
      part = *reinterpret_cast<const Packed<Element, kCount>*>(row + first);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) part.element[i] = rest;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) part.element[i] = first + i < n ? row[first + i] : rest;
  }
}

template <class Element, int kCount>
DEVICE void store_part(const Packed<Element, kCount>& part, Element* row, int first, int n,
                       bool whole) {
  if (whole) {
    if (first < n) *reinterpret_cast<Packed<Element, kCount>*>(row + first) = part;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (first + i < n) row[first + i] = part.element[i];
  }
}

// Calls function(Element()) for the element type of a dtype.
template <class Function>
void with_element(DType dtype, Function function) {
  switch (dtype) {
    case kFloat16:
      return function(Float16());
    case kBFloat16:
      return function(BFloat16());
    case kFloat64:
      return function(double());
    default:
      return function(float());
  }
}

// The same for an array that has the element type of x, or float32 if that is a half type.
template <class Element, class Function>
void with_wide_element(DType dtype, Function function) {
  if constexpr (is_half<Element>) {
    if (dtype == kFloat32) return function(float());
  }
  function(Element());
}

}  // namespace tensor_ops
