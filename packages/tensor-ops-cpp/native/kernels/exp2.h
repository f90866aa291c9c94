// Powers of two of vectors, for results that are not subnormal.
#pragma once

#include "kernels/constants.h"
#include "kernels/elements.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The digits that are wanted of a result: the last bits of the compute type, or of a half type.
enum class Digits { kAll, kHalf };
template <class Element>
constexpr Digits kDigitsOf = is_half<Element> ? Digits::kHalf : Digits::kAll;

// 2^y is computed from y = k + r, k being a multiple of 1 / entries and |r| <= 1 / (2 entries), as
// 2^k (1 + r q(r)). The levels that can look up a number in a register have as many entries as that
// has lanes.
template <class C>
constexpr std::size_t kExp2Entries = sizeof(C) == sizeof(float) ? kFloatTable : kDoubleTable;
template <class C>
struct Exp2Table : Exp2Constants<C, kExp2Entries<C>> {
  static constexpr std::size_t entries = kExp2Entries<C>;
  static constexpr int fraction_bits = sizeof(C) == sizeof(float) ? 23 : 52;
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
  TENSOR_OPS_INLINE Exp2() : table_(table(Table::powers)) {}
  // With another table: all of its entries are the powers times the same factor, and so are the
  // results.
  explicit TENSOR_OPS_INLINE Exp2(const C (&multiples)[Table::entries])
      : table_(table(multiples)) {}
  // Results are divided by 2^k, k being a whole number, shifted.
  explicit TENSOR_OPS_INLINE Exp2(V shifted_whole)
      : table_(table(Table::powers) - exponent(bits(shifted_whole))) {}

  // The whole number below a shifted k.
  static TENSOR_OPS_INLINE V whole(V shifted) {
    return bit_cast<V>(bits(shifted) & ~static_cast<UnsignedOf<C>>(Table::entries - 1));
  }

  // k for y near it, in the form that of() wants.
  static TENSOR_OPS_INLINE V unshifted(V k) { return k - (V{} + kExp2Shift<C>); }

  // 2^(k + r)
  template <Digits digits>
  TENSOR_OPS_INLINE V of(V shifted, V r) const {
    if constexpr (digits == Digits::kHalf)
      return by_series(shifted, r, Table::half_series);
    else
      return by_series(shifted, r, Table::series);
  }

  // 2^k (1 + r series(r)), k being shifted: r may be in another unit than k.
  template <std::size_t terms>
  TENSOR_OPS_INLINE V by_series(V shifted, V r, const C (&series)[terms]) const {
    const Bits n = bits(shifted);
    Bits scale = exponent(n);
    if constexpr (Table::entries > 1)
      scale += bits(look_up(bit_cast<V>(table_), n));
    else
      scale += table_;
    const V power = bit_cast<V>(scale);
    return fma(power * r, polynomial(r, series), power);
  }

 private:
  static constexpr int index_bits() {
    return Table::entries == 16 ? 4 : Table::entries == 8 ? 3 : 0;
  }
  static TENSOR_OPS_INLINE Bits exponent(Bits n) {
    return n << (Table::fraction_bits - index_bits());
  }
  static TENSOR_OPS_INLINE Bits table(const C (&powers)[Table::entries]) {
    Bits value;
    for (std::size_t l = 0; l < kLanes<C>; ++l) {
      const std::size_t j = l % Table::entries;
      value[l] = __builtin_bit_cast(UnsignedOf<C>, powers[j]) -
                 (static_cast<UnsignedOf<C>>(j) << (Table::fraction_bits - index_bits()));
    }
    return value;
  }

  const Bits table_;
};

// exp(-x), for an |x| of at most ExpConstants::ordinary. Error 1.1 ULP.
template <Digits digits, class V>
TENSOR_OPS_INLINE V exp_of_negative(V x) {
  constexpr Pair<Lane<V>> factor = ExpConstants<Lane<V>>::log2_e;
  const V shifted = fma(x, V{} - factor.hi, V{} + kExp2Shift<Lane<V>>);
  V rest = fma(x, V{} - factor.hi, -Exp2<V>::unshifted(shifted));
  if constexpr (digits == Digits::kAll) rest = fma(x, V{} - factor.lo, rest);
  return Exp2<V>().template of<digits>(shifted, rest);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
