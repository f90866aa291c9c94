// The exponential function: a short form for arguments whose result is far from overflow and
// underflow, and forms that are right anywhere and never lose a bit before a product does.
#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/elements.cuh"

namespace tensor_ops {

// exp(r) is 1 + r + r^2 q(r) for |r| <= log(2) / 2; beyond kLowest exp is 0 even times kFactor; exp
// of kDeepest times kFactor and any number is 0. The product of an exponent and kLn2Hi is exact.
// 2^r is 1 + r p(r) for |r| <= 1/2; relative errors 7.6e-9 and 2.1e-17.
template <class R>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kLog2E = 1.44269504f, kLog2ELo = 1.92596303e-08f;
  static constexpr float kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f;
  static constexpr float kLowest = -110, kFactor = 200, kDeepest = -262, kOrdinary = 80;
  static constexpr int kLeastExponent = -126;
};
template <>
struct ExpConstants<double> {
  static constexpr double kLog2E = 1.4426950408889634, kLog2ELo = 2.0355273740931033e-17;
  static constexpr double kLn2Hi = 6.93147180369123816490e-01, kLn2Lo = 1.90821492927058770002e-10;
  static constexpr double kLowest = -760, kFactor = 2000, kDeepest = -2125, kOrdinary = 690;
  static constexpr int kLeastExponent = -1022;
};

__device__ __forceinline__ float exp_series(float r) {
  constexpr float q[] = {0.00139411131f, 0.00836317521f, 0.0416663736f, 0.166665763f, 0.5f};
  return polynomial(r, q);
}
__device__ __forceinline__ double exp_series(double r) {
  constexpr double q[] = {2.5110038941419351e-08, 2.7620076797013646e-07, 2.7557242365479354e-06,
                          2.4801521320158068e-05, 0.00019841269886565843, 0.0013888888917198393,
                          0.0083333333333222154,  0.041666666666624157,   0.16666666666666674,
                          0.50000000000000011};
  return polynomial(r, q);
}
__device__ __forceinline__ float exp2_series(float r) {
  constexpr float p[] = {0.000154697351f, 0.00133908668f, 0.00961803086f,
                         0.0555035695f,   0.240226507f,   0.693147182f};
  return polynomial(r, p);
}
__device__ __forceinline__ double exp2_series(double r) {
  constexpr double p[] = {4.4566761605529841e-10, 7.0725862125807788e-09, 1.0178051723732434e-07,
                          1.3215442586443145e-06, 1.5252733853290228e-05, 0.00015403530441738812,
                          0.0013333558146395995,  0.0096181291076068865,  0.055504108664821659,
                          0.24022650695910097,    0.69314718055994529};
  return polynomial(r, p);
}

// 2^(k + r), given k + kShift, and a result that is a normal number.
__device__ __forceinline__ float ordinary_exp2(float shifted, float r) {
  const float power = exponent_bits(shifted, 0x3f800000u);
  return fused(power * r, exp2_series(r), power);
}
__device__ __forceinline__ double ordinary_exp2(double shifted, double r) {
  const double power = exponent_bits(shifted, 0x3ff0000000000000ull);
  return fused(power * r, exp2_series(r), power);
}

// To 1 ULP, or to far more digits than a half type has, for a quotient and a divisor that are far
// from overflow and underflow.
template <class Element>
__device__ __forceinline__ Real<Element> ordinary_quotient(Real<Element> a, Real<Element> b) {
  if constexpr (sizeof(Element) == 8) {
    return a / b;
  } else {
    const float reciprocal = fast_reciprocal(b), rough = a * reciprocal;
    // What is left is subtracted, not added: -0 less 0 is -0, and -0 plus 0 is not.
    return is_half<Element> ? rough : fused(fused(rough, b, -a), -reciprocal, rough);
  }
}

// exp(x) for |x| <= kOrdinary: to 1.1 ULP, or to far more digits than a half type has.
template <class Element>
__device__ __forceinline__ Real<Element> ordinary_exp(Real<Element> x) {
  using R = Real<Element>;
  using C = ExpConstants<R>;
  if constexpr (is_half<Element>) {
    return fast_exp2(x * C::kLog2E);
  } else {
    const R shifted = fused(x, C::kLog2E, Format<R>::kShift);
    const R r = fused(x, C::kLog2E, Format<R>::kShift - shifted);
    return ordinary_exp2(shifted, fused(x, C::kLog2ELo, r));
  }
}

// exp of a number as (1 + fraction) * 2^exponent, the fraction in [-0.3, 0.42].
template <class R>
struct ReducedExp {
  R fraction, exponent;
};

// exp(x + lo), where lo is at most a few units in the last place of x.
template <class R>
__device__ __forceinline__ ReducedExp<R> reduced_exp(R x, R lo) {
  using C = ExpConstants<R>;
  const R k = rounded(x * C::kLog2E);
  const R r = fused(k, -C::kLn2Lo, fused(k, -C::kLn2Hi, x)) + lo;
  return {fused(r * r, exp_series(r), r), k};
}

// exp of a number as (1 + fraction) * scale1 * scale2, the scales powers of two.
template <class R>
struct ScaledExp {
  R fraction, scale1, scale2;

  __device__ __forceinline__ R value() const { return ((1 + fraction) * scale1) * scale2; }
  // Where the exp is too small for a normal number it loses no bits before the product does.
  __device__ __forceinline__ R times(R factor) const {
    const R scaled = factor * scale1;
    return fused(fraction, scaled, scaled) * scale2;
  }
};

// exp(x + lo) for x <= 0.
template <class R>
__device__ __forceinline__ ScaledExp<R> scaled_exp(R x, R lo) {
  const ReducedExp<R> e = reduced_exp(at_least(x, ExpConstants<R>::kLowest), lo);
  const R k = rounded(e.exponent * R{0.5});
  return {e.fraction, power_of_two(k), power_of_two(e.exponent - k)};
}

// exp of a number <= 0 as (1 + fraction) * scale * scale * rest, the last three powers of two, for
// products that may be ordinary numbers where the exp alone is none: whoever multiplies brings in
// the large factor before `rest`.
template <class R>
struct DeepExp {
  R fraction, scale, rest;

  // factor * exp short of one scale and the rest.
  __device__ __forceinline__ R part(R factor) const {
    const R scaled = factor * scale;
    return fused(fraction, scaled, scaled);
  }
  // x + factor * exp, given the part.
  __device__ __forceinline__ R added(R x, R its_part) const {
    return fused(its_part, scale * rest, x);
  }
};

// exp(x + lo) for kDeepest <= x <= 0: never 0, so that it leaves an infinite factor infinite.
template <class R>
__device__ __forceinline__ DeepExp<R> deep_exp(R x, R lo) {
  const ReducedExp<R> e = reduced_exp(x, lo);
  const R k = rounded(e.exponent * (R{1} / 3));
  return {e.fraction, power_of_two(k), power_of_two(e.exponent - 2 * k)};
}

}  // namespace tensor_ops
