// Constants of exp and of the normal distribution. Written by tools/kernel_constants.py: change
// tools/kernel_constants.toml and run that instead of changing this file.
#pragma once

#include "kernels/arithmetic.cuh"

// clang-format off
namespace tensor_ops {

// exp(r) is 1 + r + r^2 series(r) for |r| <= log(2) / 2. The product of an exponent and ln2's hi is
// exact. Beyond lowest and highest exp is 0 or infinity, even times anything up to factor; exp of
// deepest times factor and any finite number is 0. The short formula is for arguments up to
// ordinary.
template <class R>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kLog2EHi = 1.44269502f, kLog2ELo = 1.92596303e-08f;
  static constexpr float kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f;
  static constexpr float kLowest = -110.0f;
  static constexpr float kFactor = 200.0f;
  static constexpr float kDeepest = -262.0f;
  static constexpr float kOrdinary = 80.0f;
  static __device__ __forceinline__ float series(float x) {
    constexpr float c[] = {0.00139411131f, 0.00836317521f, 0.0416663736f, 0.166665763f, 0.5f};
    return polynomial(x, c);
  }
};
template <>
struct ExpConstants<double> {
  static constexpr double kLog2EHi = 1.4426950408889634, kLog2ELo = 2.0355273740931033e-17;
  static constexpr double kLn2Hi = 6.93147180369123816490e-01, kLn2Lo = 1.90821492927058770002e-10;
  static constexpr double kLowest = -760.0;
  static constexpr double kFactor = 2000.0;
  static constexpr double kDeepest = -2125.0;
  static constexpr double kOrdinary = 690.0;
  static __device__ __forceinline__ double series(double x) {
    constexpr double c[] = {2.5110038941419351e-08, 2.7620076797013646e-07, 2.7557242365479354e-06,
        2.4801521320158068e-05, 0.00019841269886565843, 0.0013888888917198393,
        0.0083333333333222154, 0.041666666666624157, 0.16666666666666674, 0.50000000000000011};
    return polynomial(x, c);
  }
};

// 2^r is 1 + r series(r) for |r| <= 1/2. The half series has the digits that half types need.
template <class R>
struct Exp2Constants;
template <>
struct Exp2Constants<float> {
  static __device__ __forceinline__ float series(float x) {
    constexpr float c[] = {0.000154697351f, 0.00133908668f, 0.00961803086f, 0.0555035695f,
        0.240226507f, 0.693147182f};
    return polynomial(x, c);
  }
};
template <>
struct Exp2Constants<double> {
  static __device__ __forceinline__ double series(double x) {
    constexpr double c[] = {4.4566761605529841e-10, 7.0725862125807788e-09, 1.0178051723732434e-07,
        1.3215442586443145e-06, 1.5252733853290228e-05, 0.00015403530441738812,
        0.0013333558146395995, 0.0096181291076068865, 0.055504108664821659, 0.24022650695910097,
        0.69314718055994529};
    return polynomial(x, c);
  }
};

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x * sigmoid(x * (c1 + c3 x^2)). d1 and d3 are
// c1 and c3 times log2(e); d1's hi has half the bits, so that what rounding takes from d1 + d3 x^2
// is exact. From far on the result is x or, even times the largest number, 0. The short formula is
// for magnitudes up to ordinary.
template <class R>
struct GeluTanhConstants;
template <>
struct GeluTanhConstants<float> {
  static constexpr float kC1Hi = 1.59576917f, kC1Lo = -4.53406805e-08f;
  static constexpr float kC3Hi = 0.0713548139f, kC3Lo = 2.39883247e-09f;
  static constexpr float kD1Hi = 2.3017578125f, kD1Lo = 0.00045038565f;
  static constexpr float kD3Hi = 0.102943242f, kD3Lo = -2.01619854e-09f;
  static constexpr float kFar = 14.9f;
  static constexpr float kOrdinary = 9.7f;
};
template <>
struct GeluTanhConstants<double> {
  static constexpr double kC1Hi = 1.5957691216057308, kC1Lo = -9.9693088091109202e-17;
  static constexpr double kC3Hi = 0.071354816272600249, kC3Lo = -6.175149918155315e-19;
  static constexpr double kD1Hi = 2.302208185195923, kD1Lo = 1.2948402037571394e-08;
  static constexpr double kD3Hi = 0.10294323958002349, kD3Lo = -5.978177400718744e-18;
  static constexpr double kFar = 30.6;
  static constexpr double kOrdinary = 20.5;
};

// The tail Phi(-a) exp(a^2 / 2) (a + shift) of the normal distribution is a smooth function of v =
// a / (a + shift), falling from shift / 2 at v = 0 to 0.4 as v goes to 1; the series is in 2 v - 1.
// From end on Phi(-a) times anything finite is 0. The short formula and the half series, which has
// the digits that half types need, are for magnitudes up to ordinary. Magnitudes below tiny lose
// digits in products. half_log2_e is log2(e) / 2.
template <class R>
struct MillsConstants;
template <>
struct MillsConstants<float> {
  static constexpr float kShift = 1.5f;
  static constexpr float kEnd = 22.875f;
  static constexpr float kOrdinary = 12.5f;
  static constexpr float kTiny = 5.421010862427522e-20f;
  static constexpr float kHalfLog2EHi = 0.721347511f, kHalfLog2ELo = 9.62981517e-09f;
  static __device__ __forceinline__ float series(float x) {
    constexpr float c[] = {-3.95245916e-05f, 0.000103873943f, 0.000532971928f, 0.000338434533f,
        -0.0010817087f, -0.00276979897f, -0.00242497306f, 0.00400563842f, 0.0176399015f,
        0.0178944226f, -0.0574955158f, -0.195099413f, 0.617341995f};
    return polynomial(x, c);
  }
  static __device__ __forceinline__ float half_series(float x) {
    constexpr float c[] = {-0.00224649417f, 0.00105069042f, 0.0170107018f, 0.0189228207f,
        -0.0573403426f, -0.195196137f, 0.617337763f};
    return polynomial(x, c);
  }
};
template <>
struct MillsConstants<double> {
  static constexpr double kShift = 4.5;
  static constexpr double kEnd = 65.1;
  static constexpr double kOrdinary = 37.0;
  static constexpr double kTiny = 7.458340731200207e-155;
  static constexpr double kHalfLog2EHi = 0.72134752044448169, kHalfLog2ELo = 1.0177636870465517e-17;
  static __device__ __forceinline__ double series(double x) {
    constexpr double c[] = {8.5188898756904821e-10, -6.4377909836811337e-11,
        -1.0591808184920767e-08, -4.850308906613259e-09, 6.9688394566266494e-08,
        6.3779235877070665e-08, -3.7863412413486461e-07, -5.0154310740034406e-07,
        2.1424914029821446e-06, 3.1907476935043314e-06, -1.4235733254240766e-05,
        -1.5933230007037042e-05, 0.00011204264083297183, 6.3811760907557892e-06,
        -0.00091774648802587339, 0.0017488305652533958, 0.0042236133783802102,
        -0.033871326176991519, 0.11138259657032358, -0.25314179995097374, 0.44645251705567601,
        -0.64025776025261705, 0.76323052897020316};
    return polynomial(x, c);
  }
};

}  // namespace tensor_ops
