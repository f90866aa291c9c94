// tanh without branches.
#pragma once

#include "kernels/exp.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Relative error at most 4 ULP. Near 0 the Taylor series, whose next term is below half an ULP
// there; elsewhere (1 - e) / (1 + e) for e = exp(-2 |x|).
TENSOR_OPS_INLINE float tanh_of(float x) {
  constexpr float kNear = 0.25f;
  const float square = x * x;
  float series = fma(square, 62.0f / 2835, -17.0f / 315);
  series = fma(series, square, 2.0f / 15);
  series = fma(series, square, -1.0f / 3);
  const float near = fma(series * square, x, x);
  const float e = scaled_exp(-2 * magnitude(x)).value();
  const float far = __builtin_copysignf((1 - e) / (1 + e), x);
  return magnitude(x) < kNear ? near : far;
}

// cap * tanh(x / cap)
TENSOR_OPS_INLINE float soft_capped(float x, float cap) { return cap * tanh_of(x / cap); }

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
