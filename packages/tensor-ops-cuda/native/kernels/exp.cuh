// The exponential function: a short form for arguments whose result is far from overflow and
// underflow, and forms that are right anywhere and never lose a bit before a product does.
#pragma once

#include "kernels/constants.cuh"
#include "kernels/elements.cuh"

namespace tensor_ops {

// 2^(k + r), given k + kShift, and a result that is a normal number.
DEVICE float ordinary_exp2(float shifted, float r) {
  const float power = exponent_bits(shifted, 0x3f800000u);
  return fused(power * r, Exp2Constants<float>::series(r), power);
}
DEVICE double ordinary_exp2(double shifted, double r) {
  const double power = exponent_bits(shifted, 0x3ff0000000000000ull);
  return fused(power * r, Exp2Constants<double>::series(r), power);
}

// To 1 ULP, or to far more digits than a half type has, for a quotient and a divisor that are far
// from overflow and underflow.
template <class Element>
DEVICE Real<Element> ordinary_quotient(Real<Element> a, Real<Element> b) {
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
  // Where the exp is too small for a normal number it loses no bits before the product does.
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
// products that may be ordinary numbers where the exp alone is none: whoever multiplies brings in
// the large factor before `rest`.
template <class R>
struct DeepExp {
  R fraction, scale, rest;

  // factor * exp short of one scale and the rest.
  DEVICE R part(R factor) const {
    const R scaled = factor * scale;
    return fused(fraction, scaled, scaled);
  }
  // x + factor * exp, given the part.
  DEVICE R added(R x, R its_part) const { return fused(its_part, scale * rest, x); }
};

// exp(x + lo) for kDeepest <= x <= 0: never 0, so that it leaves an infinite factor infinite.
template <class R>
DEVICE DeepExp<R> deep_exp(R x, R lo) {
  const ReducedExp<R> e = reduced_exp(x, lo);
  const R k = rounded(e.exponent * (R{1} / 3));
  return {e.fraction, power_of_two(k), power_of_two(e.exponent - 2 * k)};
}

}  // namespace tensor_ops
