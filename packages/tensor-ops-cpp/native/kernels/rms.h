// Root-mean-square normalisation of a row of values, shared by rms_norm and add_rms_norm.
#pragma once

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Computes in C: write(i, value, normalised) is called for each i with value = values.template
// at<C>(i). Returns false, having written nothing, when the row needs a wider type than C.
template <class C, class Values, class Weight, class Write>
TENSOR_OPS_INLINE bool rms_normalise_in(std::size_t n, double eps, Values values, Weight weight,
                                        Write write) {
  const double squares = sum<C>(n, [&](std::size_t i) {
    const C v = values.template at<C>(i);
    return v * v;
  });
  const double mean_square = squares / static_cast<double>(n) + eps;
  if (!is_safe_in(C(), mean_square)) return false;
  const C scale = static_cast<C>(1 / __builtin_sqrt(mean_square));
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) {
    const C v = values.template at<C>(i);
    write(i, v, (v * scale) * static_cast<C>(weight(i)));
  }
  return true;
}

// In the row's own compute type, or in double where float32 would overflow or lose digits.
template <class C, class Values, class Weight, class Write>
TENSOR_OPS_INLINE void rms_normalise(std::size_t n, double eps, Values values, Weight weight,
                                     Write write) {
  if (!rms_normalise_in<C>(n, eps, values, weight, write))
    rms_normalise_in<double>(n, eps, values, weight, write);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
