// x * sigmoid(w), the core of silu and of gelu's tanh form.
#pragma once

#include "kernels/exp.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// x * sigmoid(w) for w of x's sign, given |w| as magnitude + lo. About 2.5 ULP everywhere.
template <class C>
TENSOR_OPS_INLINE C times_sigmoid(C x, C magnitude, C lo = 0) {
  const ScaledExp<C> e = scaled_exp(-magnitude, -lo);
  // The clamp keeps -inf * 0 from becoming NaN: there the limit is 0.
  const C below = e.times(at_least(x, -ExpRange<C>::factor));
  return (x >= 0 ? x : below) / (1 + e.value());
}

struct Silu {
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x) {
    return times_sigmoid(x, magnitude(x));
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
