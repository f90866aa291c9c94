// Products with the sigmoid function.
#pragma once

#include "kernels/exp.cuh"

namespace tensor_ops {

// An op has a short formula for ordinary numbers and one that is right anywhere, which is rarely
// called: inlined it would take registers from the other.

// Whether a second factor can be multiplied in without a thought of overflow; NaN is not.
template <class R>
__device__ __forceinline__ bool is_ordinary_factor(R up) {
  return magnitude(up) < R{1e36f};
}

// x * sigmoid(w) for w of x's sign, given |w| as size + lo. About 2.5 ULP everywhere.
template <class R>
__device__ __noinline__ R times_sigmoid(R x, R size, R lo) {
  const ScaledExp<R> e = scaled_exp(-size, -lo);
  // The clamp keeps -inf * 0 from becoming NaN: there the limit is 0.
  const R below = e.times(at_least(x, -ExpConstants<R>::kFactor));
  return (x >= 0 ? x : below) / (1 + e.value());
}

// x * sigmoid(w) * up likewise, also where the product without `up` is no normal number; |w| at
// most -kDeepest. Nothing on the way is greater than `up` or the result.
template <class R>
__device__ __noinline__ R times_sigmoid_and(R x, R up, R size, R lo) {
  const DeepExp<R> e = deep_exp(-size, -lo);
  const R part = e.part(1);
  const R share = up / e.added(1, part);
  if (x >= 0) return x * share;
  const R below = at_least(x, ExpConstants<R>::kDeepest) * ((share * e.scale) * part);
  return below * (x == -static_cast<R>(INFINITY) ? R{0} : e.rest);
}

}  // namespace tensor_ops
