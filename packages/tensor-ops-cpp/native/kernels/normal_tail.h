// The tail of the normal distribution, Phi(-a) for a >= 0, with a small relative error everywhere.
#pragma once

#include "kernels/exp.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Phi(-a) exp(a^2 / 2) (a + shift), a smooth function of v = a / (a + shift) that falls from shift
// / 2 at v = 0 to 0.4 as v goes to 1. The polynomial is in u = 2 v - 1. The coefficients are by
// tools/fit_polynomials.py; relative errors 3.3e-8 (float) and 7.3e-17 (double).
template <class C>
struct Mills;

template <>
struct Mills<float> {
  static constexpr float shift = 1.5;
  static constexpr float end = 15;  // from here on a * Phi(-a) is 0
  static TENSOR_OPS_INLINE float at(float u) {
    return polynomial(u, 0.000141694545f, 0.000455225061f, 0.00026851939f, -0.00102339184f,
                      -0.00272314553f, -0.00244567334f, 0.00399217755f, 0.0176433455f,
                      0.0178959779f, -0.0574957356f, -0.195099458f, 0.617341995f);
  }
};

template <>
struct Mills<double> {
  static constexpr double shift = 4;
  static constexpr double end = 40;
  static TENSOR_OPS_INLINE double at(double u) {
    return polynomial(u, -1.2257282165139999e-09, -4.0242064520444422e-10, 1.4681932090733906e-08,
                      1.6279737940774983e-08, -7.7237097860010021e-08, -1.568918708326051e-07,
                      2.64109954958104e-07, 1.0220965721835628e-06, -6.2516357072314088e-07,
                      -5.9201288725170518e-06, 7.1493725312973671e-07, 3.51446063733411e-05,
                      -1.9078315372828863e-06, -0.00023109491095845897, 0.00013334424619467926,
                      0.0016308184541493017, -0.0034796923613645788, -0.0075401889664934163,
                      0.060396574890653795, -0.18652185795966358, 0.3871374007422197,
                      -0.60789664197189208, 0.75528513041575152);
  }
};

// a * Phi(-a) for a >= 0. The square is kept as hi + lo, as its absolute error is the relative
// error of exp.
template <class C>
TENSOR_OPS_INLINE C normal_tail_moment(C a) {
  a = at_most(a, Mills<C>::end);
  const Pair<C> square = exact_product(a, a);
  const ScaledExp<C> e = scaled_exp(C(-0.5) * square.hi, C(-0.5) * square.lo);
  const C v = a / (a + Mills<C>::shift);
  return e.times(v * Mills<C>::at(fma(C(2), v, C(-1))));
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
