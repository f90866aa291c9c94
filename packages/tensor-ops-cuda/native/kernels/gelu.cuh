// The Gaussian error linear unit: x times the normal distribution function at x, or its
// approximation by tanh. Each function is that of gelu, and of gelu_mul, whose second input is a
// factor and whose product is right also where gelu(x) alone is subnormal.
#pragma once

#include "kernels/sigmoid.cuh"

namespace tensor_ops {

// A magnitude as hi + lo: the absolute error of an exponential's argument becomes the relative
// error of the exponential.
template <class R>
struct Magnitude {
  R hi, lo;
};

template <class Element>
struct TanhGelu {
  using R = Real<Element>;
  using C = GeluTanhConstants<R>;

  static DEVICE bool is_ordinary(R x) { return magnitude(x) < C::kOrdinary; }
  static DEVICE bool is_ordinary(R x, R up) { return is_ordinary(x) && is_ordinary_factor(up); }

  static DEVICE R ordinary(R x) { return ordinary(x, 1); }
  static DEVICE R ordinary(R x, R up) { return ordinary_quotient<Element>(x * up, divisor(x)); }

  static __device__ __noinline__ R general(R x) {
    const Magnitude<R> w = sigmoid_argument(at_most(magnitude(x), C::kFar));
    return times_sigmoid(x, w.hi, w.lo);
  }
  static __device__ __noinline__ R general(R x, R up) {
    const Magnitude<R> w = sigmoid_argument(at_most(magnitude(x), C::kFar));
    return times_sigmoid_and(x, up, w.hi, w.lo);
  }

 private:
  // 1 + exp(-argument of the sigmoid), for an ordinary x.
  static DEVICE R divisor(R x) {
    const R square = x * x;
    const R factor = fused(square, C::kD3Hi, C::kD1Hi);
    if constexpr (is_half<Element>) return 1 + fast_exp2(-(x * factor) - x * C::kD1Lo);
    const R shifted = fused(x, -factor, Format<R>::kShift);
    const R r = fused(x, -factor, Format<R>::kShift - shifted);
    const R lost = fused(square, C::kD3Hi, C::kD1Hi - factor);
    const R of_square = fused(product_error(x, x, square), C::kD3Hi, lost);
    const R of_constants = fused(square, C::kD3Lo, C::kD1Lo);
    return 1 + ordinary_exp2(shifted, fused(x, -(of_square + of_constants), r));
  }

  // The magnitude of the sigmoid's argument, given that of x.
  static DEVICE Magnitude<R> sigmoid_argument(R a) {
    const R square = a * a, square_lo = product_error(a, a, square);
    const R cubic = square * C::kC3Hi;
    const R of_cubic = fused(square, C::kC3Lo, product_error(square, C::kC3Hi, cubic));
    const R cubic_lo = fused(square_lo, C::kC3Hi, of_cubic);
    const R factor = cubic + C::kC1Hi;
    const R factor_lo = sum_error(C::kC1Hi, cubic, factor) + (cubic_lo + C::kC1Lo);
    const R hi = a * factor;
    return {hi, fused(a, factor_lo, product_error(a, factor, hi))};
  }
};

template <class Element>
struct NormalGelu {
  using R = Real<Element>;
  using C = MillsConstants<R>;

  static DEVICE bool is_ordinary(R x) { return magnitude(x) < C::kOrdinary; }
  static DEVICE bool is_ordinary(R x, R up) {
    return is_ordinary(x) && magnitude(x) > C::kTiny && is_ordinary_factor(up);
  }

  // max(x, -0) - a Phi(-a), so that it is -0 where x < 0 and the moment is 0.
  static DEVICE R ordinary(R x) {
    const R a = magnitude(x), v = ordinary_quotient<Element>(a, a + C::kShift), square = a * a;
    R moment;
    if constexpr (is_half<Element>) {
      moment = fast_exp2(square * -C::kHalfLog2EHi) * (v * C::half_series(v + v - 1));
    } else {
      const R shifted = fused(square, -C::kHalfLog2EHi, Format<R>::kShift);
      const R r = fused(square, -C::kHalfLog2EHi, Format<R>::kShift - shifted);
      const R of_square = fused(product_error(a, a, square), -C::kHalfLog2EHi, r);
      const R power = ordinary_exp2(shifted, fused(square, -C::kHalfLog2ELo, of_square));
      moment = power * (v * C::series(v + v - 1));
    }
    return (x < 0 ? -R{0} : x) - moment;
  }
  static DEVICE R ordinary(R x, R up) { return ordinary(x) * up; }

  static __device__ __noinline__ R general(R x) {
    const R a = at_most(magnitude(x), C::kEnd);
    const Magnitude<R> half_of = half_square(a);
    const R v = a / (a + C::kShift);
    const R moment = scaled_exp(-half_of.hi, -half_of.lo).times(v * C::series(v + v - 1));
    return (x < 0 ? -R{0} : x) - moment;
  }

  // A tiny x is scaled: its product with the distribution may be subnormal before `up` is
  // multiplied in.
  static __device__ __noinline__ R general(R x, R up) {
    const bool is_tiny = magnitude(x) < C::kTiny;
    const R grow = is_tiny ? 1 / C::kTiny : 1, shrink = is_tiny ? C::kTiny : 1;
    const R a = at_most(magnitude(x), C::kEnd);
    const Magnitude<R> half_of = half_square(a);
    const DeepExp<R> e = deep_exp(-half_of.hi, -half_of.lo);
    const R v = (a * grow) / (a + C::kShift);
    const R part = e.part(v * C::series(fused(2 * shrink, v, R{-1})));
    const R below = (-(up * e.scale) * part) * e.rest;
    const R above = e.added(x * grow, -part) * up;
    return (x < 0 ? below : above) * (x == -static_cast<R>(INFINITY) ? R{0} : shrink);
  }

 private:
  static DEVICE Magnitude<R> half_square(R a) {
    const R square = a * a;
    return {square * R{0.5}, product_error(a, a, square) * R{0.5}};
  }
};

}  // namespace tensor_ops
