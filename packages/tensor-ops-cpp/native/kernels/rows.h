// Rows of a Run, and sums along them.
#pragma once

#include "kernels/elements.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Row r of array k; T is const for an input.
template <class T>
TENSOR_OPS_INLINE T* row_of(const Run& run, std::size_t k, std::size_t r) {
  return reinterpret_cast<T*>(run.data[k] + static_cast<std::ptrdiff_t>(r) * run.stride[k]);
}

// An optional array is given in all rows of a run or in none.
template <class T>
TENSOR_OPS_INLINE T* optional_row_of(const Run& run, std::size_t k, std::size_t r) {
  return run.data[k] ? row_of<T>(run, k, r) : nullptr;
}

// Sums are kept in a fixed number of lanes, element i always going to lane i mod kLanes: the result
// does not depend on where the row lies in memory. The lanes fill half the vector registers of the
// level.
#if defined(__AVX__) || defined(__aarch64__)
constexpr std::size_t kLaneBytes = 256;
#else
constexpr std::size_t kLaneBytes = 128;
#endif

// Every so many elements the lanes are added up in double, which bounds the error of long rows.
constexpr std::size_t kChunk = 4096;

template <class C>
struct Lanes {
  static constexpr std::size_t count = kLaneBytes / sizeof(C);
  C lane[count] = {};

  TENSOR_OPS_INLINE double total() const {
    C part[count];
    for (std::size_t l = 0; l < count; ++l) part[l] = lane[l];
    for (std::size_t width = count / 2; width > 8; width /= 2)
      for (std::size_t l = 0; l < width; ++l) part[l] += part[l + width];
    double sum = 0;
    for (std::size_t l = 0; l < 8; ++l)
      sum += static_cast<double>(part[l]) + static_cast<double>(part[l + 8]);
    return sum;
  }
};

// Sum of term(i) for i < n, accumulated in C.
template <class C, class Term>
TENSOR_OPS_INLINE double sum(std::size_t n, Term term) {
  constexpr std::size_t lanes = Lanes<C>::count;
  double total = 0;
  for (std::size_t begin = 0; begin < n; begin += kChunk) {
    const std::size_t end = n - begin < kChunk ? n : begin + kChunk;
    Lanes<C> acc;
    std::size_t i = begin;
    for (; i + lanes <= end; i += lanes) {
#pragma omp simd
      for (std::size_t l = 0; l < lanes; ++l) acc.lane[l] += term(i + l);
    }
#pragma omp simd
    for (std::size_t l = 0; l < end - i; ++l) acc.lane[l] += term(i + l);
    total += acc.total();
  }
  return total;
}

// Whether a mean square leaves float32 arithmetic room enough on both sides, so that nothing in the
// sum behind it can have overflowed, or have been lost to underflow.
TENSOR_OPS_INLINE bool is_safe_in(float, double mean_square) {
  return mean_square > 0x1p-100 && mean_square < 0x1p100;
}
TENSOR_OPS_INLINE bool is_safe_in(double, double) { return true; }

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
