// Powers of two of vectors, for results that are normal numbers.
#pragma once

#include "kernels/elements.h"
#include "kernels/polynomial.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// How exactly a result is wanted: to the last bits of the compute type, or of a half type.
enum class Digits { kAll, kHalf };
template <class Element>
constexpr Digits kDigitsOf = is_half<Element> ? Digits::kHalf : Digits::kAll;

// 2^y is computed from y = k + r, k being a multiple of 1 / entries and |r| <= 1 / (2 entries), as
// 2^k (1 + r q(r)). The levels that can look up a number in a register have as many entries as that
// has lanes. The polynomials q are by tools/fit_polynomials.py; their relative errors are 2.4e-9
// (16 entries), 4.4e-10 (8) and 7.6e-9 (1) in float, 2.1e-17 in double, and 6.8e-6 at most for
// Digits::kHalf.
template <class C, std::size_t entries>
struct Exp2Series;

template <>
struct Exp2Series<float, 16> {
  static constexpr float powers[16] = {1.0f,        1.04427373f, 1.09050775f, 1.13878858f,
                                       1.18920708f, 1.24185777f, 1.29683959f, 1.35425556f,
                                       1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f,
                                       1.68179286f, 1.75625217f, 1.8340081f,  1.91520655f};
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V quotient(V r) {
    if constexpr (digits == Digits::kHalf) return polynomial(r, 0.240235895f, 0.693174303f);
    return polynomial(r, 0.0555057377f, 0.240233555f, 0.693147182f);
  }
};

template <>
struct Exp2Series<float, 8> {
  static constexpr float powers[8] = {1.0f,        1.09050775f, 1.18920708f, 1.29683959f,
                                      1.41421354f, 1.54221082f, 1.68179286f, 1.8340081f};
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V quotient(V r) {
    if constexpr (digits == Digits::kHalf) return polynomial(r, 0.240264073f, 0.693255603f);
    return polynomial(r, 0.00961903203f, 0.0555093177f, 0.240226507f, 0.693147182f);
  }
};

template <>
struct Exp2Series<float, 1> {
  static constexpr float powers[1] = {1.0f};
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V quotient(V r) {
    if constexpr (digits == Digits::kHalf)
      return polynomial(r, 0.00967604294f, 0.0558383316f, 0.240221679f, 0.693136752f);
    return polynomial(r, 0.000154697351f, 0.00133908668f, 0.00961803086f, 0.0555035695f,
                      0.240226507f, 0.693147182f);
  }
};

template <>
struct Exp2Series<double, 8> {
  static constexpr double powers[8] = {1.0,
                                       1.0905077326652577,
                                       1.189207115002721,
                                       1.2968395546510096,
                                       1.4142135623730951,
                                       1.5422108254079407,
                                       1.681792830507429,
                                       1.8340080864093424};
  template <Digits, class V>
  static TENSOR_OPS_INLINE V quotient(V r) {
    return polynomial(r, 1.5253628465794321e-05, 0.00015404433820434186, 0.0013333558121188408,
                      0.0096181290899832479, 0.055504108664823949, 0.24022650695910933,
                      0.69314718055994529);
  }
};

template <>
struct Exp2Series<double, 1> {
  static constexpr double powers[1] = {1.0};
  template <Digits, class V>
  static TENSOR_OPS_INLINE V quotient(V r) {
    return polynomial(r, 4.4566761605529841e-10, 7.0725862125807788e-09, 1.0178051723732434e-07,
                      1.3215442586443145e-06, 1.5252733853290228e-05, 0.00015403530441738812,
                      0.0013333558146395995, 0.0096181291076068865, 0.055504108664821659,
                      0.24022650695910097, 0.69314718055994529);
  }
};

template <class C>
struct Exp2Table;
template <>
struct Exp2Table<float> : Exp2Series<float, kFloatTable> {
  static constexpr std::size_t entries = kFloatTable;
  static constexpr int fraction_bits = 23, bias = 127;
};
template <>
struct Exp2Table<double> : Exp2Series<double, kDoubleTable> {
  static constexpr std::size_t entries = kDoubleTable;
  static constexpr int fraction_bits = 52, bias = 1023;
};

// Adding this to y leaves k as a fixed-point number in the sum's low bits.
template <class C>
constexpr C kExp2Shift =
    static_cast<C>(1.5 * static_cast<double>(std::uint64_t{1} << Exp2Table<C>::fraction_bits) /
                   static_cast<double>(Exp2Table<C>::entries));

// Powers of two by table: the entries less their index, which the shifted k brings back.
template <class V>
class Exp2 {
  using C = Lane<V>;
  using Bits = BitsOf<V>;
  using Table = Exp2Table<C>;

 public:
  TENSOR_OPS_INLINE Exp2() : table_(table()) {}
  // Results are divided by 2^k, k being a whole number, shifted.
  explicit TENSOR_OPS_INLINE Exp2(V shifted_whole)
      : table_(table() - exponent(bits(shifted_whole))) {}

  // The whole number below a shifted k.
  static TENSOR_OPS_INLINE V whole(V shifted) {
    return bit_cast<V>(bits(shifted) & ~static_cast<UnsignedOf<C>>(Table::entries - 1));
  }

  // k for y near it, in the form that of() wants.
  static TENSOR_OPS_INLINE V unshifted(V k) { return k - (V{} + kExp2Shift<C>); }

  // 2^(k + r)
  template <Digits digits>
  TENSOR_OPS_INLINE V of(V shifted, V r) const {
    const Bits n = bits(shifted);
    Bits scale = exponent(n);
    if constexpr (Table::entries > 1)
      scale += bits(look_up(bit_cast<V>(table_), n));
    else
      scale += table_;
    const V power = bit_cast<V>(scale);
    return fma(power * r, Table::template quotient<digits>(r), power);
  }

 private:
  static constexpr int index_bits() {
    return Table::entries == 16 ? 4 : Table::entries == 8 ? 3 : 0;
  }
  static TENSOR_OPS_INLINE Bits exponent(Bits n) {
    return n << (Table::fraction_bits - index_bits());
  }
  static TENSOR_OPS_INLINE Bits table() {
    Bits value;
    for (std::size_t l = 0; l < kLanes<C>; ++l) {
      const std::size_t j = l % Table::entries;
      value[l] = __builtin_bit_cast(UnsignedOf<C>, Table::powers[j]) -
                 (static_cast<UnsignedOf<C>>(j) << (Table::fraction_bits - index_bits()));
    }
    return value;
  }

  const Bits table_;
};

// log2(e) as hi + lo.
template <class C>
constexpr Pair<C> kLog2E{1.44269502f, 1.92596303e-08f};
template <>
constexpr Pair<double> kLog2E<double>{1.4426950408889634, 2.0355273740931033e-17};

// exp(-x), for an |x| of at most kOrdinaryExponent. Error 1.1 ULP.
template <class C>
constexpr C kOrdinaryExponent = sizeof(C) == sizeof(float) ? C(80) : C(690);

template <Digits digits, class V>
TENSOR_OPS_INLINE V exp_of_negative(V x) {
  constexpr Pair<Lane<V>> factor = kLog2E<Lane<V>>;
  const V shifted = fma(x, V{} - factor.hi, V{} + kExp2Shift<Lane<V>>);
  V rest = fma(x, V{} - factor.hi, -Exp2<V>::unshifted(shifted));
  if constexpr (digits == Digits::kAll) rest = fma(x, V{} - factor.lo, rest);
  return Exp2<V>().template of<digits>(shifted, rest);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
