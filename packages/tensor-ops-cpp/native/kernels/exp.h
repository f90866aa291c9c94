// exp of a number without branches or tables, also where the result is subnormal.
#pragma once

#include "kernels/constants.h"
#include "kernels/vector.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Adding and subtracting 1.5 * 2^23 (or 2^52) rounds to an integer.
template <class C>
struct Rounding;
template <>
struct Rounding<float> {
  static constexpr float shift = 12582912.0f;
};
template <>
struct Rounding<double> {
  static constexpr double shift = 6755399441055744.0;
};

// The integer nearest to a * b.
template <class C>
TENSOR_OPS_INLINE C rounded_product(C a, C b) {
  return fma(a, b, Rounding<C>::shift) - Rounding<C>::shift;
}

// 2^k for an integer k, if that is not subnormal. The sum's low bits hold the biased exponent; the
// shift moves them into place and drops the rest.
TENSOR_OPS_INLINE float power_of_two(float k) {
  return bit_cast<float>(bit_cast<std::uint32_t>(k + (Rounding<float>::shift + 127)) << 23);
}
TENSOR_OPS_INLINE double power_of_two(double k) {
  return bit_cast<double>(bit_cast<std::uint64_t>(k + (Rounding<double>::shift + 1023)) << 52);
}

// exp of a number as (1 + fraction) * 2^exponent, the fraction in [-0.3, 0.42].
template <class C>
struct ReducedExp {
  C fraction, exponent;
};

// exp(x + lo), where lo is at most a few units in the last place of x.
template <class C>
TENSOR_OPS_INLINE ReducedExp<C> reduced_exp(C x, C lo) {
  using Constants = ExpConstants<C>;
  const C k = rounded_product(x, Constants::log2_e.hi);
  C r = fma(k, -Constants::ln2.hi, x);
  r = fma(k, -Constants::ln2.lo, r) + lo;
  return {fma(r * r, polynomial(r, Constants::series), r), k};
}

// exp of a number as (1 + fraction) * scale1 * scale2, the scales powers of two.
template <class C>
struct ScaledExp {
  C fraction, scale1, scale2;
  TENSOR_OPS_INLINE C value() const { return ((1 + fraction) * scale1) * scale2; }
  // More accurate than factor * value(): 1 + fraction is not rounded, and where the exp is
  // subnormal it loses no bits before the product does.
  TENSOR_OPS_INLINE C times(C factor) const {
    const C scaled = factor * scale1;
    return fma(fraction, scaled, scaled) * scale2;
  }
};

// exp(x + lo). If lo is 0, the error of value() is 1.1 ULP, before the result is rounded to a
// subnormal number.
template <class C>
TENSOR_OPS_INLINE ScaledExp<C> scaled_exp(C x, C lo = 0) {
  x = at_most(at_least(x, ExpConstants<C>::lowest), ExpConstants<C>::highest);
  const ReducedExp<C> e = reduced_exp(x, lo);
  const C k = rounded_product(e.exponent, C(0.5));
  return {e.fraction, power_of_two(k), power_of_two(e.exponent - k)};
}

// exp of a number <= 0 as (1 + fraction) * scale * scale * rest, the last three powers of two, for
// products that may be normal numbers though the exp alone is subnormal or 0: the caller multiplies
// by the large factor before `rest`.
template <class C>
struct DeepExp {
  C fraction, scale, rest;
  // factor * exp, but for one scale and the rest.
  TENSOR_OPS_INLINE C part(C factor) const {
    const C scaled = factor * scale;
    return fma(fraction, scaled, scaled);
  }
  // x + factor * exp, given the part.
  TENSOR_OPS_INLINE C added_to(C x, C part) const { return fma(part, scale * rest, x); }
};

// exp(x + lo) for deepest <= x <= 0: never 0, so that it leaves an infinite factor infinite.
template <class C>
TENSOR_OPS_INLINE DeepExp<C> deep_exp(C x, C lo = 0) {
  const ReducedExp<C> e = reduced_exp(x, lo);
  const C k = rounded_product(e.exponent, C(1) / 3);
  return {e.fraction, power_of_two(k), power_of_two(e.exponent - 2 * k)};
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
