// The Gaussian error linear unit: x times the normal distribution function at x, or its
// approximation by tanh, alone and times a second factor.
#pragma once

#include "kernels/sigmoid.cuh"

namespace tensor_ops {

// A magnitude as hi + lo: its absolute error is the relative error of an exp.
template <class R>
struct Magnitude {
  R hi, lo;
};

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x * sigmoid(x * (c1 + c3 x^2)), with the
// constants as hi + lo. From kFar on the result is x or, even times the largest number, 0.
// d1 and d3 are c1 and c3 times log2(e); d1's hi has half the bits, so that what rounding takes
// from the factor is exact.
template <class R>
struct TanhConstants;
template <>
struct TanhConstants<float> {
  static constexpr float kC1Hi = 1.59576917f, kC1Lo = -4.53406805e-08f;
  static constexpr float kC3Hi = 0.0713548139f, kC3Lo = 2.39883247e-09f;
  static constexpr float kD1Hi = 0x1.26ap+1f, kD1Lo = 0.00045038565f;
  static constexpr float kD3Hi = 0.102943242f, kD3Lo = -2.01619854e-09f;
  static constexpr float kFar = 14.9f, kOrdinary = 9.7f;
};
template <>
struct TanhConstants<double> {
  static constexpr double kC1Hi = 1.5957691216057308, kC1Lo = -9.9693088091109202e-17;
  static constexpr double kC3Hi = 0.071354816272600249, kC3Lo = -6.175149918155315e-19;
  static constexpr double kD1Hi = 0x1.26aec2p+1, kD1Lo = 1.2948402037571394e-08;
  static constexpr double kD3Hi = 0.10294323958002349, kD3Lo = -5.978177400718744e-18;
  static constexpr double kFar = 30.6, kOrdinary = 20.5;
};

template <class Element>
struct TanhGelu {
  using R = Real<Element>;
  using C = TanhConstants<R>;

  static __device__ __forceinline__ bool is_ordinary(R x) { return magnitude(x) < C::kOrdinary; }
  static __device__ __forceinline__ bool is_ordinary_gate(R x) { return is_ordinary(x); }

  static __device__ __forceinline__ R ordinary(R x) {
    return ordinary_quotient<Element>(x, divisor(x));
  }
  static __device__ __forceinline__ R ordinary(R x, R up) {
    return ordinary_quotient<Element>(x * up, divisor(x));
  }

  static __device__ __noinline__ R anywhere(R x) {
    const Magnitude<R> w = sigmoid_argument(at_most(magnitude(x), C::kFar));
    return times_sigmoid(x, w.hi, w.lo);
  }
  static __device__ __noinline__ R anywhere(R x, R up) {
    const Magnitude<R> w = sigmoid_argument(at_most(magnitude(x), C::kFar));
    return times_sigmoid_and(x, up, w.hi, w.lo);
  }

 private:
  // 1 + exp(-argument of the sigmoid), for an ordinary x.
  static __device__ __forceinline__ R divisor(R x) {
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
  static __device__ __forceinline__ Magnitude<R> sigmoid_argument(R a) {
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

// The tail Phi(-a) exp(a^2 / 2) (a + kShift) of the normal distribution is a smooth function of
// v = a / (a + kShift), here in powers of 2 v - 1; relative errors 3.8e-8 and 4.1e-17. From kEnd on
// Phi(-a) times anything finite is 0.
template <class R>
struct MillsConstants;
template <>
struct MillsConstants<float> {
  static constexpr float kShift = 1.5f, kEnd = 22.875f, kOrdinary = 12.5f, kTiny = 0x1p-64f;
  static constexpr float kHalfLog2E = 0.721347511f, kHalfLog2ELo = 9.62981517e-09f;
};
template <>
struct MillsConstants<double> {
  static constexpr double kShift = 4.5, kEnd = 65.1, kOrdinary = 37, kTiny = 0x1p-512;
  static constexpr double kHalfLog2E = 0.72134752044448169, kHalfLog2ELo = 1.0177636870465517e-17;
};

__device__ __forceinline__ float mills_series(float u) {
  constexpr float c[] = {-3.95245916e-05f, 0.000103873943f, 0.000532971928f, 0.000338434533f,
                         -0.0010817087f,   -0.00276979897f, -0.00242497306f, 0.00400563842f,
                         0.0176399015f,    0.0178944226f,   -0.0574955158f,  -0.195099413f,
                         0.617341995f};
  return polynomial(u, c);
}
// For arguments up to kOrdinary; relative error 2.1e-5.
__device__ __forceinline__ float short_mills_series(float u) {
  constexpr float c[] = {-0.00224649417f, 0.00105069042f, 0.0170107018f, 0.0189228207f,
                         -0.0573403426f,  -0.195196137f,  0.617337763f};
  return polynomial(u, c);
}
__device__ __forceinline__ double mills_series(double u) {
  constexpr double c[] = {8.5188898756904821e-10,  -6.4377909836811337e-11, -1.0591808184920767e-08,
                          -4.850308906613259e-09,  6.9688394566266494e-08,  6.3779235877070665e-08,
                          -3.7863412413486461e-07, -5.0154310740034406e-07, 2.1424914029821446e-06,
                          3.1907476935043314e-06,  -1.4235733254240766e-05, -1.5933230007037042e-05,
                          0.00011204264083297183,  6.3811760907557892e-06,  -0.00091774648802587339,
                          0.0017488305652533958,   0.0042236133783802102,   -0.033871326176991519,
                          0.11138259657032358,     -0.25314179995097374,    0.44645251705567601,
                          -0.64025776025261705,    0.76323052897020316};
  return polynomial(u, c);
}

template <class Element>
struct NormalGelu {
  using R = Real<Element>;
  using C = MillsConstants<R>;

  static __device__ __forceinline__ bool is_ordinary(R x) { return magnitude(x) < C::kOrdinary; }
  static __device__ __forceinline__ bool is_ordinary_gate(R x) {
    return is_ordinary(x) && magnitude(x) > C::kTiny;
  }

  // max(x, -0) - a Phi(-a), so that it is -0 where x < 0 and the moment is 0.
  static __device__ __forceinline__ R ordinary(R x) {
    const R a = magnitude(x), v = ordinary_quotient<Element>(a, a + C::kShift), square = a * a;
    R moment;
    if constexpr (is_half<Element>) {
      moment = fast_exp2(square * -C::kHalfLog2E) * (v * short_mills_series(v + v - 1));
    } else {
      const R shifted = fused(square, -C::kHalfLog2E, Format<R>::kShift);
      const R r = fused(square, -C::kHalfLog2E, Format<R>::kShift - shifted);
      const R of_square = fused(product_error(a, a, square), -C::kHalfLog2E, r);
      const R power = ordinary_exp2(shifted, fused(square, -C::kHalfLog2ELo, of_square));
      moment = power * (v * mills_series(v + v - 1));
    }
    return (x < 0 ? -R{0} : x) - moment;
  }
  static __device__ __forceinline__ R ordinary(R x, R up) { return ordinary(x) * up; }

  static __device__ __noinline__ R anywhere(R x) {
    const R a = at_most(magnitude(x), C::kEnd);
    const Magnitude<R> half_of = half_square(a);
    const R v = a / (a + C::kShift);
    const R moment = scaled_exp(-half_of.hi, -half_of.lo).times(v * mills_series(v + v - 1));
    return (x < 0 ? -R{0} : x) - moment;
  }

  // A tiny x is scaled, or its digits would be lost before it meets `up`.
  static __device__ __noinline__ R anywhere(R x, R up) {
    const bool is_tiny = magnitude(x) < C::kTiny;
    const R grow = is_tiny ? 1 / C::kTiny : 1, shrink = is_tiny ? C::kTiny : 1;
    const R a = at_most(magnitude(x), C::kEnd);
    const Magnitude<R> half_of = half_square(a);
    const DeepExp<R> e = deep_exp(-half_of.hi, -half_of.lo);
    const R v = (a * grow) / (a + C::kShift);
    const R part = e.part(v * mills_series(fused(2 * shrink, v, R{-1})));
    const R below = (-(up * e.scale) * part) * e.rest;
    const R above = e.added(x * grow, -part) * up;
    return (x < 0 ? below : above) * (x == -static_cast<R>(INFINITY) ? R{0} : shrink);
  }

 private:
  static __device__ __forceinline__ Magnitude<R> half_square(R a) {
    const R square = a * a;
    return {square * R{0.5}, product_error(a, a, square) * R{0.5}};
  }
};

}  // namespace tensor_ops
