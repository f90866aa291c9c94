// The tail of the normal distribution, Phi(-a) for a >= 0, with a small relative error everywhere.
#pragma once

#include "kernels/exp.h"
#include "kernels/exp2.h"

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
  template <class X>
  static TENSOR_OPS_INLINE X at(X u) {
    return polynomial(u, -3.95245916e-05f, 0.000103873943f, 0.000532971928f, 0.000338434533f,
                      -0.0010817087f, -0.00276979897f, -0.00242497306f, 0.00400563842f,
                      0.0176399015f, 0.0178944226f, -0.0574955158f, -0.195099413f, 0.617341995f);
  }
};

template <>
struct Mills<double> {
  static constexpr double shift = 4.5;
  static constexpr double end = 65.1;
  template <class X>
  static TENSOR_OPS_INLINE X at(X u) {
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

// log2(e) / 2 as hi + lo.
template <class C>
constexpr Pair<C> kHalfLog2E{0.721347511f, 9.62981517e-09f};
template <>
constexpr Pair<double> kHalfLog2E<double>{0.72134752044448169, 1.0177636870465517e-17};

template <class V>
TENSOR_OPS_INLINE V scaled_tail_moment_by_mills(V a) {
  const V v = a / (a + Mills<Lane<V>>::shift);
  return v * Mills<Lane<V>>::at(v + v - Lane<V>(1));
}

#if defined(__AVX512F__)

// Phi(-a) exp(a^2 / 2) for 0 <= a < 15, in 16 pieces: a quarter of a power of two of a + 1 each.
// A column has the coefficients of the piece whose number, modulo 16, is made of the exponent's and
// the fraction's leading bits; its polynomial is in a less the piece's begin. By
// tools/fit_polynomials.py; relative errors 4.7e-8 and 2.6e-5.
template <Digits>
struct TailPieces {
  static constexpr int degree = 6;
  static constexpr float coefficients[degree + 1][16] = {
      {0.000608754461f, 0.000230892561f, 9.50075482e-05f, 4.20236429e-05f, 1.40673355e-05f,
       3.85922021e-06f, 1.25492568e-06f, 4.67287634e-07f, 1.31604466e-07f, 3.12458077e-08f,
       9.3629291e-09f, 3.3267733e-09f, 0.00761468569f, 0.00414108299f, 0.00231552217f,
       0.00132930581f},
      {-0.00291257817f, -0.00117978756f, -0.000518249697f, -0.000244486786f, -0.00011114034f,
       -3.36015401e-05f, -1.19894457e-05f, -4.87457373e-06f, -1.94734753e-06f, -5.20471133e-07f,
       -1.73753932e-07f, -6.81436845e-08f, -0.0256851371f, -0.0145281758f, -0.00845049135f,
       -0.00504675787f},
      {0.00917267427f, 0.004082039f, 0.00196547946f, 0.00101334404f, 0.000545230519f,
       0.00019022201f, 7.75116059e-05f, 3.56138989e-05f, 1.75900423e-05f, 5.59742512e-06f,
       2.17924753e-06f, 9.79574907e-07f, 0.0623483434f, 0.0371743962f, 0.0227881037f,
       0.0143373068f},
      {-0.0250714328f, -0.0124921342f, -0.00670246407f, -0.00383039773f, -0.00230677961f,
       -0.000957858749f, -0.000456238835f, -0.000241105779f, -0.000137795301f, -5.40867841e-05f,
       -2.51591282e-05f, -1.31849156e-05f, -0.132967621f, -0.0842974037f, -0.0549113192f,
       -0.0366823636f},
      {0.0621059798f, 0.0351864733f, 0.0213125721f, 0.0136481654f, 0.00915571302f, 0.00460574916f,
       0.00259522418f, 0.001590461f, 0.00103897543f, 0.000510061975f, 0.000285719696f,
       0.000175407971f, 0.249999449f, 0.170086488f, 0.118776053f, 0.084953174f},
      {-0.137363955f, -0.0902712643f, -0.0627382696f, -0.0456139483f, -0.034400396f, -0.0212997068f,
       -0.014345753f, -0.0102663934f, -0.00768789044f, -0.00475317799f, -0.00321849389f,
       -0.0023198917f, -0.398942262f, -0.295434237f, -0.224132866f, -0.173767939f},
      {0.261578292f, 0.20578067f, 0.168101996f, 0.14133133f, 0.121513948f, 0.094410643f,
       0.0769193023f, 0.0647793114f, 0.0558934808f, 0.0437987894f, 0.03597489f, 0.0305094142f, 0.5f,
       0.414032102f, 0.349618822f, 0.30023247f},
  };
};
template <>
struct TailPieces<Digits::kHalf> {
  static constexpr int degree = 3;
  static constexpr float coefficients[degree + 1][16] = {
      {-0.0176240578f, -0.00911750365f, -0.00505108712f, -0.0029666475f, -0.00147459994f,
       -0.000656903838f, -0.000330004987f, -0.000181731055f, -8.54027166e-05f, -3.66037966e-05f,
       -1.81084652e-05f, -9.92923287e-06f, -0.105693087f, -0.0679321513f, -0.0448184423f,
       -0.0302956328f},
      {0.059923932f, 0.0341926254f, 0.0208238997f, 0.0133914463f, 0.00868030917f, 0.00443164119f,
       0.00252145808f, 0.00155548449f, 0.000979779288f, 0.000489952334f, 0.00027750514f,
       0.000171578489f, 0.245895237f, 0.167620808f, 0.117253438f, 0.0839883983f},
      {-0.137149751f, -0.0901737064f, -0.0626902804f, -0.0455887169f, -0.0343083739f,
       -0.0212658774f, -0.0143313734f, -0.0102595557f, -0.00766514149f, -0.00474539585f,
       -0.00321529899f, -0.0023183967f, -0.398738474f, -0.295311928f, -0.224057361f, -0.173720106f},
      {0.261574894f, 0.205779135f, 0.168101251f, 0.141330943f, 0.121511064f, 0.094409585f,
       0.0769188553f, 0.0647791028f, 0.0558920652f, 0.0437983051f, 0.0359746926f, 0.030509321f,
       0.499998391f, 0.414031148f, 0.349618226f, 0.300232083f},
  };
};

// a * Phi(-a) exp(a^2 / 2) of vectors.
template <Digits digits>
TENSOR_OPS_INLINE Floats scaled_tail_moment(Floats a) {
  using Pieces = TailPieces<digits>;
  const BitsOf<Floats> one_more = bits(a + 1.0f);
  const BitsOf<Floats> piece = one_more >> 21;
  const Floats begin = bit_cast<Floats>(one_more & 0xFFE00000u) - 1.0f;
  const auto coefficient = [piece](int i) {
    return look_up(load_vector<Floats>(Pieces::coefficients[i]), piece);
  };
  Floats value = coefficient(0);
  for (int i = 1; i <= Pieces::degree; ++i) value = fma(value, a - begin, coefficient(i));
  return a * value;
}

#else

template <Digits>
TENSOR_OPS_INLINE Floats scaled_tail_moment(Floats a) {
  return scaled_tail_moment_by_mills(a);
}

#endif

template <Digits>
TENSOR_OPS_INLINE Doubles scaled_tail_moment(Doubles a) {
  return scaled_tail_moment_by_mills(a);
}

// a * Phi(-a) of vectors, for 0 <= a <= the ordinary limit of GeluErf.
template <Digits digits, class V>
TENSOR_OPS_INLINE V ordinary_tail_moment(V a) {
  constexpr Pair<Lane<V>> factor = kHalfLog2E<Lane<V>>;
  const V square = a * a;
  const V shifted = fma(square, V{} - factor.hi, V{} + kExp2Shift<Lane<V>>);
  V rest = fma(square, V{} - factor.hi, -Exp2<V>::unshifted(shifted));
  if constexpr (digits == Digits::kAll) {
    rest = fma(fma(a, a, -square), V{} - factor.hi, rest);
    rest = fma(square, V{} - factor.lo, rest);
  }
  return Exp2<V>().template of<digits>(shifted, rest) * scaled_tail_moment<digits>(a);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
