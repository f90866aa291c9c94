// The Gaussian error linear unit x * Phi(x), in its exact form and in its tanh approximation, both
// with a small relative error everywhere, the negative tail included.
#pragma once

#include "kernels/normal_tail.h"
#include "kernels/sigmoid.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct GeluTanh {
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x) {
    const Pair<C> w = argument(x);
    return times_sigmoid(x, w.hi, w.lo);
  }
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x, C up) {
    const Pair<C> w = argument(x);
    return times_sigmoid_and(x, up, w.hi, w.lo);
  }

  template <class C>
  static constexpr C ordinary = GeluTanhConstants<C>::ordinary;
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x) {
    return over_one_plus<digits>(x, exp_of_argument<digits>(x));
  }
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x, V up) {
    return over_one_plus<digits>(x * up, exp_of_argument<digits>(x));
  }

  // exp(-x * (c1 + c3 x^2))
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V exp_of_argument(V x) {
    using Constants = GeluTanhConstants<Lane<V>>;
    const V square = x * x;
    const V factor = fma(square, V{} + Constants::d3.hi, V{} + Constants::d1.hi);
    const V shifted = fma(x, -factor, V{} + kExp2Shift<Lane<V>>);
    V rest = fma(x, -factor, -Exp2<V>::unshifted(shifted));
    if constexpr (digits == Digits::kAll) {
      // Rounding has taken this from the factor: d1.hi has so few bits that the difference is
      // exact.
      const V lost = fma(square, V{} + Constants::d3.hi, Constants::d1.hi - factor);
      const V of_square = fma(fma(x, x, -square), V{} + Constants::d3.hi, lost);
      const V of_constants = fma(square, V{} + Constants::d3.lo, V{} + Constants::d1.lo);
      rest = fma(x, -(of_square + of_constants), rest);
    } else {
      rest = fma(x, V{} - Constants::d1.lo, rest);
    }
    return Exp2<V>().template of<digits>(shifted, rest);
  }

  // The magnitude of the sigmoid's argument. In the tail its absolute error is the relative error
  // of exp, so it is kept as hi + lo.
  template <class C>
  static TENSOR_OPS_INLINE Pair<C> argument(C x) {
    using Constants = GeluTanhConstants<C>;
    const C a = at_most(magnitude(x), Constants::far);
    const Pair<C> square = exact_product(a, a);
    const Pair<C> cubic = exact_product(square.hi, Constants::c3.hi);
    const C cubic_lo = fma(square.lo, Constants::c3.hi, fma(square.hi, Constants::c3.lo, cubic.lo));
    const Pair<C> factor = exact_sum(Constants::c1.hi, cubic.hi);
    const C factor_lo = factor.lo + (cubic_lo + Constants::c1.lo);
    const Pair<C> w = exact_product(a, factor.hi);
    return {w.hi, fma(a, factor_lo, w.lo)};
  }
};

struct GeluErf {
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x) {
    return (x < 0 ? C(-0.0) : x) - normal_tail_moment(magnitude(x));
  }
  // Like times_sigmoid_and. A tiny x is scaled, or its digits would be lost before it meets `up`.
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x, C up) {
    constexpr C tiny = MillsConstants<C>::tiny;
    const bool is_tiny = magnitude(x) < tiny;
    const C grow = is_tiny ? 1 / tiny : 1, shrink = is_tiny ? tiny : 1;
    const NormalTailMoment<C> tail = deep_normal_tail_moment(magnitude(x), grow, shrink);
    const C below = (-(up * tail.exp.scale) * tail.part) * tail.exp.rest;
    const C above = tail.exp.added_to(x * grow, -tail.part) * up;
    return (x < 0 ? below : above) * (is_minus_infinity(x) ? 0 : shrink);
  }

  template <class C>
  static constexpr C ordinary = MillsConstants<C>::ordinary;
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x) {
    // larger() gives the second of two zeros, and where one is NaN.
    return less_tail_moment<digits>(larger(-V{}, x), magnitude_of(x));
  }
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x, V up) {
    return apply_ordinary<digits>(x) * up;
  }
};

// The derivatives of both at x, times a factor and `last`, as slope_of_sigmoid_product has it.
struct GeluTanhDerivative {
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x, C factor, C last = 1) {
    const Pair<C> w = GeluTanh::argument(x);
    constexpr C far = GeluTanhConstants<C>::far;
    const C near = at_most(at_least(x, -far), far);
    return slope_of_sigmoid_product(x, factor, deep_exp(-w.hi, -w.lo), rise<C>(near), last);
  }

  template <class C>
  static constexpr C ordinary = GeluTanhConstants<C>::ordinary;
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x, V factor) {
    const V exp = GeluTanh::exp_of_argument<digits>(x);
    return ordinary_slope_of_sigmoid_product<digits>(factor, exp, rise<Lane<V>>(x));
  }

 private:
  // x times the derivative of x * (c1 + c3 x^2), of a number or of a vector
  template <class C, class X>
  static TENSOR_OPS_INLINE X rise(X x) {
    using Constants = GeluTanhConstants<C>;
    return x * fma(x * x, X{} + 3 * Constants::c3.hi, X{} + Constants::c1.hi);
  }
};

struct GeluErfDerivative {
  // Phi(x) + x phi(x), or where x < 0 the tail of |x| less |x| phi(x).
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x, C factor, C last = 1) {
    const C a = at_most(magnitude(x), MillsConstants<C>::end);
    const Pair<C> square = exact_product(a, a);
    const DeepExp<C> e = deep_exp(C(-0.5) * square.hi, C(-0.5) * square.lo);
    const C rise = moment_less_tail<C>(a);
    const C below = (factor * e.scale) * e.part(-rise);
    const C above = with_share(factor, e.part(rise) * (e.scale * e.rest));
    return x >= 0 ? above * last : below * (is_minus_infinity(x) ? 0 : e.rest * last);
  }

  template <class C>
  static constexpr C ordinary = MillsConstants<C>::ordinary;
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x, V factor) {
    const V a = magnitude_of(x);
    const V rise = exp_of_half_square<digits>(a) * moment_less_tail<Lane<V>>(a);
    return factor * (x < 0 ? -rise : rise + Lane<V>(1));
  }

 private:
  // (a phi(a) - Phi(-a)) exp(a^2 / 2), of a number or of a vector
  template <class C, class X>
  static TENSOR_OPS_INLINE X moment_less_tail(X a) {
    constexpr C phi_of_0 = static_cast<C>(0.39894228040143268);  // 1 / sqrt(2 pi)
    return fma(a, X{} + phi_of_0, -scaled_tail<C>(a));
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
