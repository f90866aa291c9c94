// The tail of the normal distribution, Phi(-a) for a >= 0, with a small relative error everywhere.
#pragma once

#include "kernels/exp.h"
#include "kernels/exp2.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// A multiple of an exp, as in DeepExp.
template <class C>
struct NormalTailMoment {
  DeepExp<C> exp;
  C part;
};

// a * grow * Phi(-a) for a >= 0, `shrink` being 1 / grow, for products that may be normal numbers
// though a * Phi(-a) is subnormal or 0.
template <class C>
TENSOR_OPS_INLINE NormalTailMoment<C> deep_normal_tail_moment(C a, C grow, C shrink) {
  a = at_most(a, MillsConstants<C>::end);
  const Pair<C> square = exact_product(a, a);
  const DeepExp<C> e = deep_exp(C(-0.5) * square.hi, C(-0.5) * square.lo);
  const C v = (a * grow) / (a + MillsConstants<C>::shift);
  return {e, e.part(v * polynomial(fma(2 * shrink, v, C(-1)), MillsConstants<C>::series))};
}

// a * Phi(-a) for a >= 0. The square is kept as hi + lo, as its absolute error is the relative
// error of exp.
template <class C>
TENSOR_OPS_INLINE C normal_tail_moment(C a) {
  a = at_most(a, MillsConstants<C>::end);
  const Pair<C> square = exact_product(a, a);
  const ScaledExp<C> e = scaled_exp(C(-0.5) * square.hi, C(-0.5) * square.lo);
  const C v = a / (a + MillsConstants<C>::shift);
  return e.times(v * polynomial(fma(C(2), v, C(-1)), MillsConstants<C>::series));
}

template <class V>
TENSOR_OPS_INLINE V scaled_tail_moment_by_mills(V a) {
  using Constants = MillsConstants<Lane<V>>;
  const V v = a / (a + Constants::shift);
  return v * polynomial(v + v - Lane<V>(1), Constants::series);
}

#if defined(__AVX512F__)

// a * Phi(-a) exp(a^2 / 2) of vectors, given the coefficients of TailConstants.
template <std::size_t terms>
TENSOR_OPS_INLINE Floats scaled_tail_moment_of(Floats a, const float (&coefficients)[terms][16]) {
  const BitsOf<Floats> one_more = bits(a + 1.0f);
  const BitsOf<Floats> piece = one_more >> 21;
  const Floats begin = bit_cast<Floats>(one_more & 0xFFE00000u) - 1.0f;
  Floats value = look_up(load_vector<Floats>(coefficients[0]), piece);
  for (std::size_t i = 1; i < terms; ++i)
    value = fma(value, a - begin, look_up(load_vector<Floats>(coefficients[i]), piece));
  return a * value;
}
template <Digits digits>
TENSOR_OPS_INLINE Floats scaled_tail_moment(Floats a) {
  if constexpr (digits == Digits::kHalf)
    return scaled_tail_moment_of(a, TailConstants<float>::half_pieces);
  else
    return scaled_tail_moment_of(a, TailConstants<float>::pieces);
}

#endif

template <Digits>
TENSOR_OPS_INLINE Doubles scaled_tail_moment(Doubles a) {
  return scaled_tail_moment_by_mills(a);
}

// Phi(-a) exp(a^2 / 2) for a >= 0, of a number or of a vector.
template <class C, class X>
TENSOR_OPS_INLINE X scaled_tail(X a) {
  using Constants = MillsConstants<C>;
  const X whole = a + Constants::shift, v = a / whole;
  return polynomial(v + v - C(1), Constants::series) / whole;
}

// exp(-a^2 / 2) of vectors, for 0 <= a <= the ordinary limit of GeluErf.
template <Digits digits, class V>
TENSOR_OPS_INLINE V exp_of_half_square(V a) {
  constexpr Pair<Lane<V>> factor = MillsConstants<Lane<V>>::half_log2_e;
  const V square = a * a;
  const V shifted = fma(square, V{} - factor.hi, V{} + kExp2Shift<Lane<V>>);
  V rest = fma(square, V{} - factor.hi, -Exp2<V>::unshifted(shifted));
  if constexpr (digits == Digits::kAll) {
    rest = fma(fma(a, a, -square), V{} - factor.hi, rest);
    rest = fma(square, V{} - factor.lo, rest);
  }
  return Exp2<V>().template of<digits>(shifted, rest);
}

// a * Phi(-a) of vectors, for such an a.
template <Digits digits, class V>
TENSOR_OPS_INLINE V ordinary_tail_moment(V a) {
  return exp_of_half_square<digits>(a) * scaled_tail_moment<digits>(a);
}

// x - a * Phi(-a) for such an a.
template <Digits digits, class V>
TENSOR_OPS_INLINE V less_tail_moment(V x, V a) {
  return x - ordinary_tail_moment<digits>(a);
}

#if !defined(__AVX512F__)

// The quotient of TailQuotientConstants, but for the factor. Rounding m(a) hardly shows, because it
// is in both parts.
template <Digits digits>
TENSOR_OPS_INLINE Floats tail_quotient(Floats a) {
  using Constants = TailQuotientConstants<float>;
  if constexpr (digits == Digits::kHalf) {
    const Floats m = monic_polynomial(a, Constants::half_m);
    return m / fma(a, m, polynomial(a, Constants::half_n));
  } else {
    const Floats m = monic_polynomial(a, Constants::m);
    return m / fma(a, m, polynomial(a, Constants::n));
  }
}

// Floats without a register that could hold the pieces of TailConstants. exp(-a^2 / 2) is taken as
// 2^k exp(-r / 2), where r = a^2 + k octave is exact but for one rounding: the products of k and
// octave's hi are exact, and lo is small beside hi.
template <Digits digits>
TENSOR_OPS_INLINE Floats less_tail_moment(Floats x, Floats a) {
  using Constants = TailQuotientConstants<float>;
  using Powers = TailPowers<float, kFloatTable>;
  constexpr Pair<float> octave = Constants::octave;
  constexpr float shift = kExp2Shift<float>;
  const Floats shifted = fma(a * -MillsConstants<float>::half_log2_e.hi, a, Floats{} + shift);
  const Floats octaves = fma(shifted, Floats{} + octave.hi, Floats{} - shift * octave.hi);
  const Floats r = fma(octaves, Floats{} + octave.lo / octave.hi, fma(a, a, octaves));
  const Exp2<Floats> exp2(Powers::powers);
  Floats power;
  if constexpr (digits == Digits::kHalf)
    power = exp2.by_series(shifted, r, Powers::half_series);
  else
    power = exp2.by_series(shifted, r, Powers::series);
  return fma(-a, tail_quotient<digits>(a) * power, x);
}

#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
