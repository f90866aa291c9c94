// Products with the sigmoid function, and the sigmoid linear unit.
#pragma once

#include "kernels/exp.cuh"

namespace tensor_ops {

// The formulas for all numbers are rarely called: inlined, they would take registers from the short
// ones for ordinary numbers.

// A product with an ordinary second factor cannot overflow; NaN is none.
template <class R>
DEVICE bool is_ordinary_factor(R up) {
  return magnitude(up) < R{1e36f};
}

// x * sigmoid(w) for w of x's sign, given |w| as size + lo. The error is about 2.5 ULP at most.
template <class R>
__device__ __noinline__ R times_sigmoid(R x, R size, R lo) {
  const ScaledExp<R> e = scaled_exp(-size, -lo);
  // The clamp keeps -inf * 0 from becoming NaN: there the limit is 0.
  const R below = e.times(at_least(x, -ExpConstants<R>::kFactor));
  return (x >= 0 ? x : below) / (1 + e.value());
}

// x * sigmoid(w) * up with the same error, also where the product without `up` is subnormal. |w| is
// at most -kDeepest. No intermediate result is greater than `up` or the result.
template <class R>
__device__ __noinline__ R times_sigmoid_and(R x, R up, R size, R lo) {
  const DeepExp<R> e = deep_exp(-size, -lo);
  const R part = e.part(1);
  const R share = up / e.added(1, part);
  if (x >= 0) return x * share;
  const R below = at_least(x, ExpConstants<R>::kDeepest) * ((share * e.scale) * part);
  return below * (x == -static_cast<R>(INFINITY) ? R{0} : e.rest);
}

// The function of silu and of silu_mul, whose second input is a factor.
template <class Element>
struct Silu {
  using R = Real<Element>;
  using C = ExpConstants<R>;

  static DEVICE bool is_ordinary(R x) { return magnitude(x) < C::kOrdinary; }
  static DEVICE bool is_ordinary(R x, R up) { return is_ordinary(x) && is_ordinary_factor(up); }

  static DEVICE R ordinary(R x) { return ordinary(x, 1); }
  static DEVICE R ordinary(R x, R up) {
    return ordinary_quotient<Element>(x * up, 1 + ordinary_exp<Element>(-x));
  }

  static DEVICE R general(R x) { return times_sigmoid(x, magnitude(x), R{0}); }
  static DEVICE R general(R x, R up) {
    return times_sigmoid_and(x, up, at_most(magnitude(x), -C::kDeepest), R{0});
  }
};

}  // namespace tensor_ops
