// The exponential function: a short formula for arguments whose result is far from overflow and
// underflow, and longer ones for all arguments. Where the exponential alone would be subnormal,
// these return it in parts, so that a product with it keeps all digits that the product itself can
// hold.
#pragma once

#include "kernels/constants.cuh"
#include "kernels/elements.cuh"

namespace tensor_ops {

// 2^(k + r), given k + kShift, where the result is not subnormal.
template <class R>
DEVICE R ordinary_exp2(R shifted, R r) {
  const R power = exponent_bits(shifted, Format<R>::kOneBits);
  return fused(power * r, Exp2Constants<R>::series(r), power);
}

// a / b to 1 ULP, or to far more digits than a half type has, for a quotient and a divisor that are
// far from overflow and underflow.
template <class Element>
DEVICE Real<Element> ordinary_quotient(Real<Element> a, Real<Element> b) {
  if constexpr (sizeof(Element) == 8) {
    return a / b;
  } else {
    const float reciprocal = fast_reciprocal(b), rough = a * reciprocal;
    // The remainder is subtracted, not added, to keep the sign of a zero: -0 - 0 is -0, but -0 + 0
    // is +0.
    return is_half<Element> ? rough : fused(fused(rough, b, -a), -reciprocal, rough);
  }
}

// exp(x) for |x| <= kOrdinary: to 1.1 ULP, or to far more digits than a half type has.
template <class Element>
DEVICE Real<Element> ordinary_exp(Real<Element> x) {
  using R = Real<Element>;
  using C = ExpConstants<R>;
  if constexpr (is_half<Element>) {
    return fast_exp2(x * C::kLog2EHi);
  } else {
    const R shifted = fused(x, C::kLog2EHi, Format<R>::kShift);
    const R r = fused(x, C::kLog2EHi, Format<R>::kShift - shifted);
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
DEVICE ReducedExp<R> reduced_exp(R x, R lo) {
  using C = ExpConstants<R>;
  const R k = rounded(x * C::kLog2EHi);
  const R r = fused(k, -C::kLn2Lo, fused(k, -C::kLn2Hi, x)) + lo;
  return {fused(r * r, C::series(r), r), k};
}

// exp of a number as (1 + fraction) * scale1 * scale2, the scales powers of two.
template <class R>
struct ScaledExp {
  R fraction, scale1, scale2;

  DEVICE R value() const { return ((1 + fraction) * scale1) * scale2; }
  // factor * exp, which loses no bits to a subnormal exp.
  DEVICE R times(R factor) const {
    const R scaled = factor * scale1;
    return fused(fraction, scaled, scaled) * scale2;
  }
};

// exp(x + lo) for x <= 0.
template <class R>
DEVICE ScaledExp<R> scaled_exp(R x, R lo) {
  const ReducedExp<R> e = reduced_exp(at_least(x, ExpConstants<R>::kLowest), lo);
  const R k = rounded(e.exponent * R{0.5});
  return {e.fraction, power_of_two(k), power_of_two(e.exponent - k)};
}

// exp of a number <= 0 as (1 + fraction) * scale * scale * rest, the last three powers of two, for
// products that may be in range where the exp alone is 0. The large factor of such a product must
// be multiplied in before `rest`.
template <class R>
struct DeepExp {
  R fraction, scale, rest;

  // factor * exp without one scale and the rest.
  DEVICE R part(R factor) const {
    const R scaled = factor * scale;
    return fused(fraction, scaled, scaled);
  }
  // x + factor * exp, given part(factor).
  DEVICE R added(R x, R its_part) const { return fused(its_part, scale * rest, x); }
};

// exp(x + lo) for kDeepest <= x <= 0, in parts none of which is 0: their products with infinity are
// not NaN.
template <class R>
DEVICE DeepExp<R> deep_exp(R x, R lo) {
  const ReducedExp<R> e = reduced_exp(x, lo);
  const R k = rounded(e.exponent * (R{1} / 3));
  return {e.fraction, power_of_two(k), power_of_two(e.exponent - 2 * k)};
}

}  // namespace tensor_ops
