// The Gaussian error linear unit x * Phi(x), in its exact form and in its tanh approximation, both
// with a small relative error everywhere, the negative tail included.
#pragma once

#include "kernels/normal_tail.h"
#include "kernels/sigmoid.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x * sigmoid(x * (c1 + c3 x^2)), with the
// constants c1 = 2 sqrt(2/pi) and c3 = 0.044715 c1 as hi + lo, and an |x| from which on the result
// is x or, even times the largest number, 0.
template <class C>
struct GeluTanhConstants;
template <>
struct GeluTanhConstants<float> {
  static constexpr Pair<float> c1{1.59576917f, -4.53406805e-08f},
      c3{0.0713548139f, 2.39883247e-09f};
  static constexpr float far = 14.9f;
};
template <>
struct GeluTanhConstants<double> {
  static constexpr Pair<double> c1{1.5957691216057308, -9.9693088091109202e-17},
      c3{0.071354816272600249, -6.175149918155315e-19};
  static constexpr double far = 30.6;
};

// The same constants times log2(e), c1.hi with half the bits.
template <class C>
struct GeluTanhExponent;
template <>
struct GeluTanhExponent<float> {
  static constexpr Pair<float> c1{0x1.26ap+1f, 0.00045038565f}, c3{0.102943242f, -2.01619854e-09f};
};
template <>
struct GeluTanhExponent<double> {
  static constexpr Pair<double> c1{0x1.26aec2p+1, 1.2948402037571394e-08},
      c3{0.10294323958002349, -5.978177400718744e-18};
};

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
  static constexpr C ordinary = sizeof(C) == sizeof(float) ? C(9.7) : C(20.5);
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x) {
    return over_one_plus<digits>(x, exp_of_argument<digits>(x));
  }
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x, V up) {
    return over_one_plus<digits>(x * up, exp_of_argument<digits>(x));
  }

 private:
  // exp(-x * (c1 + c3 x^2))
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V exp_of_argument(V x) {
    using Constants = GeluTanhExponent<Lane<V>>;
    const V square = x * x;
    const V factor = fma(square, V{} + Constants::c3.hi, V{} + Constants::c1.hi);
    const V shifted = fma(x, -factor, V{} + kExp2Shift<Lane<V>>);
    V rest = fma(x, -factor, -Exp2<V>::unshifted(shifted));
    if constexpr (digits == Digits::kAll) {
      // What rounding took from the factor: c1.hi has so few bits that the difference is exact.
      const V lost = fma(square, V{} + Constants::c3.hi, Constants::c1.hi - factor);
      const V of_square = fma(fma(x, x, -square), V{} + Constants::c3.hi, lost);
      const V of_constants = fma(square, V{} + Constants::c3.lo, V{} + Constants::c1.lo);
      rest = fma(x, -(of_square + of_constants), rest);
    } else {
      rest = fma(x, V{} - Constants::c1.lo, rest);
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
    constexpr C tiny = sizeof(C) == 4 ? C(0x1p-64) : C(0x1p-512);
    const bool is_tiny = magnitude(x) < tiny;
    const C grow = is_tiny ? 1 / tiny : 1, shrink = is_tiny ? tiny : 1;
    const NormalTailMoment<C> tail = deep_normal_tail_moment(magnitude(x), grow, shrink);
    const C below = (-(up * tail.exp.scale) * tail.part) * tail.exp.rest;
    const C above = tail.exp.added_to(x * grow, -tail.part) * up;
    return (x < 0 ? below : above) * (is_minus_infinity(x) ? 0 : shrink);
  }

  template <class C>
  static constexpr C ordinary = sizeof(C) == sizeof(float) ? C(12.5) : C(37);
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x) {
    // Of two zeros and where one is NaN larger() gives the second.
    return larger(-V{}, x) - ordinary_tail_moment<digits>(magnitude_of(x));
  }
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x, V up) {
    return apply_ordinary<digits>(x) * up;
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
