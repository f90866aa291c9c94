// x * sigmoid(w), the core of silu and of gelu's tanh form.
#pragma once

#include "kernels/exp.h"
#include "kernels/exp2.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// x * sigmoid(w) for w of x's sign, given |w| as magnitude + lo. About 2.5 ULP everywhere.
template <class C>
TENSOR_OPS_INLINE C times_sigmoid(C x, C magnitude, C lo = 0) {
  const ScaledExp<C> e = scaled_exp(-magnitude, -lo);
  // The clamp keeps -inf * 0 from becoming NaN: there the limit is 0.
  const C below = e.times(at_least(x, -ExpConstants<C>::factor));
  return (x >= 0 ? x : below) / (1 + e.value());
}

// x * sigmoid(w) * up likewise, also where the product without `up` is subnormal; |w| is at most
// -ExpConstants<C>::deepest. No intermediate result is greater than `up` or the result, and what is
// lost to underflow is less than the smallest normal number.
template <class C>
TENSOR_OPS_INLINE C times_sigmoid_and(C x, C up, C magnitude, C lo = 0) {
  const DeepExp<C> e = deep_exp(-magnitude, -lo);
  const C part = e.part(1);
  const C share = up / e.added_to(1, part);
  const C below = at_least(x, ExpConstants<C>::deepest) * ((share * e.scale) * part);
  return x >= 0 ? x * share : below * (is_minus_infinity(x) ? 0 : e.rest);
}

// y * sigmoid(w) of vectors, given exp(-w).
template <Digits digits, class V>
TENSOR_OPS_INLINE V over_one_plus(V y, V exp) {
  if constexpr (digits == Digits::kHalf) return rough_quotient(y, exp + Lane<V>(1));
  return y / (exp + Lane<V>(1));
}

struct Silu {
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x) {
    return times_sigmoid(x, magnitude(x));
  }
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x, C up) {
    return times_sigmoid_and(x, up, at_most(magnitude(x), -ExpConstants<C>::deepest));
  }

  template <class C>
  static constexpr C ordinary = ExpConstants<C>::ordinary;
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x) {
    return over_one_plus<digits>(x, exp_of_negative<digits>(x));
  }
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x, V up) {
    return over_one_plus<digits>(x * up, exp_of_negative<digits>(x));
  }
};

// factor * (1 + share) for a positive sum, which is not rounded by itself: near the largest number
// that would decide whether the result is infinite.
template <class C>
TENSOR_OPS_INLINE C with_share(C factor, C share) {
  return is_finite(factor) ? fma(factor, share, factor) : factor;
}

// The derivative of x * sigmoid(w), times a factor, given e = exp(-|w|) and x dw/dx. It is right
// also where the sigmoid is subnormal, as in times_sigmoid_and. `last`, a power of two, multiplies
// it where the product of the factors alone would be infinite.
template <class C>
TENSOR_OPS_INLINE C slope_of_sigmoid_product(C x, C factor, const DeepExp<C>& e, C rise, C last) {
  const C part = e.part(1);
  const C whole = e.added_to(1, part);
  const C larger = 1 / whole;
  const C smaller = (e.scale * part) * e.rest * larger;
  const C below = fma(rise, larger, C(1)) * (((factor * larger) * e.scale) * part);
  const C above = with_share(factor, smaller * fma(rise, larger, C(-1)));
  return x >= 0 ? above * last : below * (is_minus_infinity(x) ? 0 : e.rest * last);
}

// The same of vectors, for ordinary arguments, given exp(-w).
template <Digits digits, class V>
TENSOR_OPS_INLINE V ordinary_slope_of_sigmoid_product(V factor, V exp, V rise) {
  const V one = V{} + Lane<V>(1), sigmoid = over_one_plus<digits>(one, exp);
  return (factor * sigmoid) * fma(rise, exp * sigmoid, one);
}

// The derivative of silu at x, times a factor and `last`, as slope_of_sigmoid_product has it.
struct SiluDerivative {
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x, C factor, C last = 1) {
    constexpr C deepest = ExpConstants<C>::deepest;
    const C near = at_most(at_least(x, deepest), -deepest);
    return slope_of_sigmoid_product(x, factor, deep_exp(-magnitude(near)), near, last);
  }

  template <class C>
  static constexpr C ordinary = ExpConstants<C>::ordinary;
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x, V factor) {
    return ordinary_slope_of_sigmoid_product<digits>(factor, exp_of_negative<digits>(x), x);
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
