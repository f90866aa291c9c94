// The tail of the normal distribution, Phi(-a) for a >= 0, with a small relative error everywhere.
#pragma once

#include "kernels/exp.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Phi(-a) exp(a^2 / 2) (a + shift), a smooth function of v = a / (a + shift) that falls from shift
// / 2 at v = 0 to 0.4 as v goes to 1. The polynomial is in u = 2 v - 1. The coefficients are by
// tools/fit_polynomials.py; relative errors up to where Phi(-a) times
// anything is 0: 3.8e-8 (float, a <= 20.5) and 4.1e-17 (double, a <= 54).
template <class C>
struct Mills;

template <>
struct Mills<float> {
  static constexpr float shift = 1.5;
  static constexpr float end = 22.875;  // from here on Phi(-a) times anything finite is 0
  static TENSOR_OPS_INLINE float at(float u) {
    return polynomial(u, -3.95245916e-05f, 0.000103873943f, 0.000532971928f, 0.000338434533f,
                      -0.0010817087f, -0.00276979897f, -0.00242497306f, 0.00400563842f,
                      0.0176399015f, 0.0178944226f, -0.0574955158f, -0.195099413f, 0.617341995f);
  }
};

template <>
struct Mills<double> {
  static constexpr double shift = 4.5;
  static constexpr double end = 65.1;
  static TENSOR_OPS_INLINE double at(double u) {
    return polynomial(u, 8.5188898756904821e-10, -6.4377909836811337e-11, -1.0591808184920767e-08,
                      -4.850308906613259e-09, 6.9688394566266494e-08, 6.3779235877070665e-08,
                      -3.7863412413486461e-07, -5.0154310740034406e-07, 2.1424914029821446e-06,
                      3.1907476935043314e-06, -1.4235733254240766e-05, -1.5933230007037042e-05,
                      0.00011204264083297183, 6.3811760907557892e-06, -0.00091774648802587339,
                      0.0017488305652533958, 0.0042236133783802102, -0.033871326176991519,
                      0.11138259657032358, -0.25314179995097374, 0.44645251705567601,
                      -0.64025776025261705, 0.76323052897020316);
  }
};

// A multiple of an exp, as in DeepExp.
template <class C>
struct NormalTailMoment {
  DeepExp<C> exp;
  C part;
};

// a * grow * Phi(-a) for a >= 0, `shrink` being 1 / grow, for products that may be ordinary numbers
// where a * Phi(-a) is none.
template <class C>
TENSOR_OPS_INLINE NormalTailMoment<C> deep_normal_tail_moment(C a, C grow, C shrink) {
  a = at_most(a, Mills<C>::end);
  const Pair<C> square = exact_product(a, a);
  const DeepExp<C> e = deep_exp(C(-0.5) * square.hi, C(-0.5) * square.lo);
  const C v = (a * grow) / (a + Mills<C>::shift);
  return {e, e.part(v * Mills<C>::at(fma(2 * shrink, v, C(-1))))};
}

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
