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
    return (x < 0 ? 0 : x) - normal_tail_moment(magnitude(x));
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
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
