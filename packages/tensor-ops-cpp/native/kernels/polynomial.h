// Polynomials, of numbers and of vectors.
#pragma once

#include "kernels/vector.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Horner's rule; the coefficient of the highest power comes first.
template <class X, class Coefficient, class... Rest>
TENSOR_OPS_INLINE X polynomial(X x, Coefficient highest, Rest... rest) {
  X value = X{} + highest;
  ((value = fma(value, x, X{} + rest)), ...);
  return value;
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
