// Root-mean-square normalisation of a row of values, shared by rms_norm and add_rms_norm.
#pragma once

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// 1 / sqrt(mean(values^2) + eps), or 0 where Element's type has no room for the arithmetic.
template <class Element, class Values>
TENSOR_OPS_INLINE typename Element::Compute rms_scale(std::size_t n, double eps, Values values) {
  using C = typename Element::Compute;
  const double mean_square = sum_of_squares<C>(n, values) / static_cast<double>(n) + eps;
  return is_safe_in(C(), mean_square) ? static_cast<C>(1 / __builtin_sqrt(mean_square)) : C(0);
}

// The same in double, value(i) being one number.
template <class Value>
TENSOR_OPS_INLINE double wide_rms_scale(std::size_t n, double eps, Value value) {
  const double squares = wide_sum(n, [=](std::size_t i) { return value(i) * value(i); });
  return 1 / __builtin_sqrt(squares / static_cast<double>(n) + eps);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
