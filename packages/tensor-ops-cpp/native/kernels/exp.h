// exp, without branches or tables, down into the subnormal numbers.
#pragma once

#include "kernels/arithmetic.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// exp of a number as (1 + fraction) * scale1 * scale2, the fraction in [-0.3, 0.42] and the scales
// powers of two.
template <class C>
struct ScaledExp {
  C fraction, scale1, scale2;
  TENSOR_OPS_INLINE C value() const { return ((1 + fraction) * scale1) * scale2; }
  // More accurate than factor * value(): 1 + fraction is not rounded, and where the exp is too
  // small for a normal number it loses no bits before the product does.
  TENSOR_OPS_INLINE C times(C factor) const {
    const C scaled = factor * scale1;
    return fma(fraction, scaled, scaled) * scale2;
  }
};

template <class C>
struct ExpRange;
// Beyond these arguments exp(x), and exp(x) times anything up to `factor`, is 0 or infinity.
template <>
struct ExpRange<float> {
  static constexpr float lowest = -110, highest = 90, factor = 200;
};
template <>
struct ExpRange<double> {
  static constexpr double lowest = -760, highest = 711, factor = 2000;
};

// exp(x + lo), where lo is at most a few units in the last place of x. Error of value(), lo being
// 0: 1.1 ULP in normal numbers; then rounding to the subnormal grid. The polynomials are by
// tools/fit_polynomials.py.
TENSOR_OPS_INLINE ScaledExp<float> scaled_exp(float x, float lo = 0) {
  x = at_most(at_least(x, ExpRange<float>::lowest), ExpRange<float>::highest);
  // Adding and subtracting 1.5 * 2^23 rounds to an integer; k log(2)'s first part is exact.
  constexpr float round = 12582912.0f;
  const float k = fma(x, 1.44269504f, round) - round;
  float r = fma(k, -0.693359375f, x);
  r = fma(k, 2.12194440e-4f, r) + lo;
  const float q = polynomial(r, 0.00139411131f, 0.00836317521f, 0.0416663736f, 0.166665763f, 0.5f);
  const float fraction = fma(r * r, q, r);
  const float k1 = fma(k, 0.5f, round) - round;
  const float k2 = k - k1;
  // The sum's low bits hold the biased exponent; the shift moves them into place and drops the
  // rest.
  return {fraction, bit_cast<float>(bit_cast<std::uint32_t>(k1 + (round + 127.0f)) << 23),
          bit_cast<float>(bit_cast<std::uint32_t>(k2 + (round + 127.0f)) << 23)};
}

TENSOR_OPS_INLINE ScaledExp<double> scaled_exp(double x, double lo = 0) {
  x = at_most(at_least(x, ExpRange<double>::lowest), ExpRange<double>::highest);
  constexpr double round = 6755399441055744.0;
  const double k = fma(x, 1.4426950408889634, round) - round;
  double r = fma(k, -6.93147180369123816490e-01, x);
  r = fma(k, -1.90821492927058770002e-10, r) + lo;
  const double q = polynomial(r, 2.5110038941419351e-08, 2.7620076797013646e-07,
                              2.7557242365479354e-06, 2.4801521320158068e-05,
                              0.00019841269886565843, 0.0013888888917198393, 0.0083333333333222154,
                              0.041666666666624157, 0.16666666666666674, 0.50000000000000011);
  const double fraction = fma(r * r, q, r);
  const double k1 = fma(k, 0.5, round) - round;
  const double k2 = k - k1;
  return {fraction, bit_cast<double>(bit_cast<std::uint64_t>(k1 + (round + 1023.0)) << 52),
          bit_cast<double>(bit_cast<std::uint64_t>(k2 + (round + 1023.0)) << 52)};
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
