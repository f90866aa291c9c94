// Constants of exp and of the normal distribution. Written by tools/kernel_constants.py: change
// tools/kernel_constants.toml and run that instead of changing this file.
#pragma once

#include "kernels/arithmetic.h"

// clang-format off
namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class C>
struct ExpConstants;

// exp(r) is 1 + r + r^2 series(r) for |r| <= log(2) / 2. The product of an exponent and ln2's hi is
// exact. Beyond lowest and highest exp is 0 or infinity, even times anything up to factor; exp of
// deepest times factor and any finite number is 0. The short formula is for arguments up to
// ordinary.
template <>
struct ExpConstants<float> {
  static constexpr Pair<float> log2_e{1.44269502f, 1.92596303e-08f};
  static constexpr Pair<float> ln2{0.693359375f, -2.12194440e-4f};
  static constexpr float lowest = -110.0f;
  static constexpr float highest = 90.0f;
  static constexpr float factor = 200.0f;
  static constexpr float deepest = -262.0f;
  static constexpr float ordinary = 80.0f;
  static constexpr float series[] = {0.00139411131f, 0.00836317521f, 0.0416663736f, 0.166665763f,
      0.5f};
};
template <>
struct ExpConstants<double> {
  static constexpr Pair<double> log2_e{1.4426950408889634, 2.0355273740931033e-17};
  static constexpr Pair<double> ln2{6.93147180369123816490e-01, 1.90821492927058770002e-10};
  static constexpr double lowest = -760.0;
  static constexpr double highest = 711.0;
  static constexpr double factor = 2000.0;
  static constexpr double deepest = -2125.0;
  static constexpr double ordinary = 690.0;
  static constexpr double series[] = {2.5110038941419351e-08, 2.7620076797013646e-07,
      2.7557242365479354e-06, 2.4801521320158068e-05, 0.00019841269886565843, 0.0013888888917198393,
      0.0083333333333222154, 0.041666666666624157, 0.16666666666666674, 0.50000000000000011};
};

template <class C, std::size_t entries>
struct Exp2Constants;

// 2^r is 1 + r series(r) for |r| <= 1/2. The half series has the digits that half types need.
template <>
struct Exp2Constants<float, 1> {
  static constexpr float powers[] = {1.0f};
  static constexpr float series[] = {0.000154697351f, 0.00133908668f, 0.00961803086f, 0.0555035695f,
      0.240226507f, 0.693147182f};
  static constexpr float half_series[] = {0.00967604294f, 0.0558383316f, 0.240221679f,
      0.693136752f};
};
template <>
struct Exp2Constants<double, 1> {
  static constexpr double powers[] = {1.0};
  static constexpr double series[] = {4.4566761605529841e-10, 7.0725862125807788e-09,
      1.0178051723732434e-07, 1.3215442586443145e-06, 1.5252733853290228e-05,
      0.00015403530441738812, 0.0013333558146395995, 0.0096181291076068865, 0.055504108664821659,
      0.24022650695910097, 0.69314718055994529};
};

// The same for |r| <= 1/16, with a table of the powers 2^(j/8).
template <>
struct Exp2Constants<float, 8> {
  static constexpr float powers[] = {1.0f, 1.09050775f, 1.18920708f, 1.29683959f, 1.41421354f,
      1.54221082f, 1.68179286f, 1.8340081f};
  static constexpr float series[] = {0.00961903203f, 0.0555093177f, 0.240226507f, 0.693147182f};
  static constexpr float half_series[] = {0.240264073f, 0.693255603f};
};
template <>
struct Exp2Constants<double, 8> {
  static constexpr double powers[] = {1.0, 1.0905077326652577, 1.189207115002721,
      1.2968395546510096, 1.4142135623730951, 1.5422108254079407, 1.681792830507429,
      1.8340080864093424};
  static constexpr double series[] = {1.5253628465794321e-05, 0.00015404433820434186,
      0.0013333558121188408, 0.0096181290899832479, 0.055504108664823949, 0.24022650695910933,
      0.69314718055994529};
};

// The same for |r| <= 1/32, with a table of the powers 2^(j/16).
template <>
struct Exp2Constants<float, 16> {
  static constexpr float powers[] = {1.0f, 1.04427373f, 1.09050775f, 1.13878858f, 1.18920708f,
      1.24185777f, 1.29683959f, 1.35425556f, 1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f,
      1.68179286f, 1.75625217f, 1.8340081f, 1.91520655f};
  static constexpr float series[] = {0.0555057377f, 0.240233555f, 0.693147182f};
  static constexpr float half_series[] = {0.240235895f, 0.693174303f};
};

template <class C>
struct GeluTanhConstants;

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x * sigmoid(x * (c1 + c3 x^2)). d1 and d3 are
// c1 and c3 times log2(e); d1's hi has half the bits, so that what rounding takes from d1 + d3 x^2
// is exact. From far on the result is x or, even times the largest number, 0. The short formula is
// for magnitudes up to ordinary.
template <>
struct GeluTanhConstants<float> {
  static constexpr Pair<float> c1{1.59576917f, -4.53406805e-08f};
  static constexpr Pair<float> c3{0.0713548139f, 2.39883247e-09f};
  static constexpr Pair<float> d1{2.3017578125f, 0.00045038565f};
  static constexpr Pair<float> d3{0.102943242f, -2.01619854e-09f};
  static constexpr float far = 14.9f;
  static constexpr float ordinary = 9.7f;
};
template <>
struct GeluTanhConstants<double> {
  static constexpr Pair<double> c1{1.5957691216057308, -9.9693088091109202e-17};
  static constexpr Pair<double> c3{0.071354816272600249, -6.175149918155315e-19};
  static constexpr Pair<double> d1{2.302208185195923, 1.2948402037571394e-08};
  static constexpr Pair<double> d3{0.10294323958002349, -5.978177400718744e-18};
  static constexpr double far = 30.6;
  static constexpr double ordinary = 20.5;
};

template <class C>
struct MillsConstants;

// The tail Phi(-a) exp(a^2 / 2) (a + shift) of the normal distribution is a smooth function of v =
// a / (a + shift), falling from shift / 2 at v = 0 to 0.4 as v goes to 1; the series is in 2 v - 1.
// From end on Phi(-a) times anything finite is 0. The short formula and the half series, which has
// the digits that half types need, are for magnitudes up to ordinary. Magnitudes below tiny lose
// digits in products. half_log2_e is log2(e) / 2.
template <>
struct MillsConstants<float> {
  static constexpr float shift = 1.5f;
  static constexpr float end = 22.875f;
  static constexpr float ordinary = 12.5f;
  static constexpr float tiny = 5.421010862427522e-20f;
  static constexpr Pair<float> half_log2_e{0.721347511f, 9.62981517e-09f};
  static constexpr float series[] = {-3.95245916e-05f, 0.000103873943f, 0.000532971928f,
      0.000338434533f, -0.0010817087f, -0.00276979897f, -0.00242497306f, 0.00400563842f,
      0.0176399015f, 0.0178944226f, -0.0574955158f, -0.195099413f, 0.617341995f};
};
template <>
struct MillsConstants<double> {
  static constexpr double shift = 4.5;
  static constexpr double end = 65.1;
  static constexpr double ordinary = 37.0;
  static constexpr double tiny = 7.458340731200207e-155;
  static constexpr Pair<double> half_log2_e{0.72134752044448169, 1.0177636870465517e-17};
  static constexpr double series[] = {8.5188898756904821e-10, -6.4377909836811337e-11,
      -1.0591808184920767e-08, -4.850308906613259e-09, 6.9688394566266494e-08,
      6.3779235877070665e-08, -3.7863412413486461e-07, -5.0154310740034406e-07,
      2.1424914029821446e-06, 3.1907476935043314e-06, -1.4235733254240766e-05,
      -1.5933230007037042e-05, 0.00011204264083297183, 6.3811760907557892e-06,
      -0.00091774648802587339, 0.0017488305652533958, 0.0042236133783802102, -0.033871326176991519,
      0.11138259657032358, -0.25314179995097374, 0.44645251705567601, -0.64025776025261705,
      0.76323052897020316};
};

template <class C>
struct TailConstants;

// Phi(-a) exp(a^2 / 2) for 0 <= a < 15, in 16 pieces: a quarter of a power of two of a + 1 each. A
// column has the coefficients of the piece whose number, modulo 16, is made of the leading bits of
// exponent and fraction; its polynomial is in a less the begin of the piece. The half pieces have
// the digits that half types need.
template <>
struct TailConstants<float> {
  static constexpr float pieces[][16] = {
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
          0.0769193023f, 0.0647793114f, 0.0558934808f, 0.0437987894f, 0.03597489f, 0.0305094142f,
          0.5f, 0.414032102f, 0.349618822f, 0.30023247f},
  };
  static constexpr float half_pieces[][16] = {
      {-0.0176240578f, -0.00911750365f, -0.00505108712f, -0.0029666475f, -0.00147459994f,
          -0.000656903838f, -0.000330004987f, -0.000181731055f, -8.54027166e-05f, -3.66037966e-05f,
          -1.81084652e-05f, -9.92923287e-06f, -0.105693087f, -0.0679321513f, -0.0448184423f,
          -0.0302956328f},
      {0.059923932f, 0.0341926254f, 0.0208238997f, 0.0133914463f, 0.00868030917f, 0.00443164119f,
          0.00252145808f, 0.00155548449f, 0.000979779288f, 0.000489952334f, 0.00027750514f,
          0.000171578489f, 0.245895237f, 0.167620808f, 0.117253438f, 0.0839883983f},
      {-0.137149751f, -0.0901737064f, -0.0626902804f, -0.0455887169f, -0.0343083739f,
          -0.0212658774f, -0.0143313734f, -0.0102595557f, -0.00766514149f, -0.00474539585f,
          -0.00321529899f, -0.0023183967f, -0.398738474f, -0.295311928f, -0.224057361f,
          -0.173720106f},
      {0.261574894f, 0.205779135f, 0.168101251f, 0.141330943f, 0.121511064f, 0.094409585f,
          0.0769188553f, 0.0647791028f, 0.0558920652f, 0.0437983051f, 0.0359746926f, 0.030509321f,
          0.499998391f, 0.414031148f, 0.349618226f, 0.300232083f},
  };
};

template <class C>
struct TailQuotientConstants;

// Phi(-a) exp(a^2 / 2) is factor m(a) / (a m(a) + n(a)) for 0 <= a <= 12.5, m having one more
// coefficient before these, which is 1. The factor is in the powers of TailPowers. exp(-a^2 / 2)
// falls by half when a^2 grows by an octave, whose hi has so few bits that eighths of it have exact
// multiples. The half polynomials have the digits that half types need.
template <>
struct TailQuotientConstants<float> {
  static constexpr Pair<float> octave{1.38623046875f, 6.38923699e-05f};
  static constexpr float m[] = {10.02244f, 45.6947098f, 110.298676f, 127.302452f};
  static constexpr float n[] = {0.00100808393f, 0.982495308f, 10.2573051f, 41.7492867f,
      101.574371f};
  static constexpr float half_m[] = {6.40505552f, 18.2730045f, 23.2948627f};
  static constexpr float half_n[] = {1.01743042f, 6.11419773f, 18.5869503f};
};

template <class C, std::size_t entries>
struct TailPowers;

// exp(-r / 2) is 1 + r series(r) for |r| up to half an octave. The power 1 is multiplied by the
// factor of TailQuotientConstants.
template <>
struct TailPowers<float, 1> {
  static constexpr float powers[] = {0.398948997f};
  static constexpr float series[] = {2.15963464e-05f, -0.000261521258f, 0.00260426616f,
      -0.0208331514f, 0.124999985f, -0.5f};
  static constexpr float half_series[] = {0.00259469799f, -0.0209844131f, 0.12500751f, -0.4999834f};
};

// The same for |r| up to a sixteenth of an octave, with a table of the powers 2^(j/8) times the
// factor.
template <>
struct TailPowers<float, 8> {
  static constexpr float powers[] = {0.398948997f, 0.435056955f, 0.474432975f, 0.517372847f,
      0.56419909f, 0.615263462f, 0.670949578f, 0.731675684f};
  static constexpr float series[] = {0.00260421424f, -0.0208350271f, 0.125f, -0.5f};
  static constexpr float half_series[] = {0.125000298f, -0.500116706f};
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
