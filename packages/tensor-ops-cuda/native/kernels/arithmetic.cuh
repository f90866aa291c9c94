// Arithmetic of float and double alike.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/device.cuh"

namespace tensor_ops {

DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double fused(double a, double b, double c) { return fma(a, b, c); }
DEVICE float magnitude(float x) { return fabsf(x); }
DEVICE double magnitude(double x) { return fabs(x); }

// The bounds of x; NaN stays NaN.
template <class R>
DEVICE R at_least(R x, R low) {
  return x < low ? low : x;
}
template <class R>
DEVICE R at_most(R x, R high) {
  return x > high ? high : x;
}

template <class R>
DEVICE bool is_finite(R x) {
  return magnitude(x) < static_cast<R>(INFINITY);
}

// The exact rounding errors of a product and of a sum.
template <class R>
DEVICE R product_error(R a, R b, R product) {
  return fused(a, b, -product);
}
template <class R>
DEVICE R sum_error(R a, R b, R sum) {
  const R part = sum - a;
  return (a - (sum - part)) + (b - part);
}

template <class R>
struct Format;
template <>
struct Format<float> {
  static constexpr float kShift = 12582912.0f;  // adding and subtracting it rounds to an integer
  static constexpr int kBias = 127;
  static constexpr unsigned kOneBits = 0x3f800000u;
};
template <>
struct Format<double> {
  static constexpr double kShift = 6755399441055744.0;
  static constexpr int kBias = 1023;
  static constexpr unsigned long long kOneBits = 0x3ff0000000000000ull;
};

// A number whose low bits, those of a sum with kShift, become a biased exponent.
DEVICE float exponent_bits(float sum, unsigned added = 0) {
  return __uint_as_float((__float_as_uint(sum) << 23) + added);
}
DEVICE double exponent_bits(double sum, unsigned long long added = 0) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(sum));
  return __longlong_as_double(static_cast<long long>((bits << 52) + added));
}

// 2^k for an integer k, where it is not subnormal.
template <class R>
DEVICE R power_of_two(R k) {
  return exponent_bits(k + (Format<R>::kShift + Format<R>::kBias));
}

template <class R>
DEVICE R rounded(R x) {
  return (x + Format<R>::kShift) - Format<R>::kShift;
}

// A safe mean of squares has lost no digits to underflow or overflow. NaN is not safe, since it may
// come from an overflow. Rows of float whose mean is not safe are computed again in double, and
// those of double times a power of two.
DEVICE bool is_safe(float mean_square) { return mean_square >= 1e-30f && mean_square <= 1e33f; }
DEVICE bool is_safe(double mean_square) { return mean_square >= 1e-290 && mean_square <= 1e290; }

// Powers of two that bring rows of double near 1: products with the first, of rows whose squares
// overflow, and with the second, of rows whose squares underflow, have squares and sums of squares
// that neither overflow nor are subnormal.
constexpr double kShrink = 0x1p-540, kGrow = 0x1p600;

// The elements of a row as they are, or times a power of two.
struct Unscaled {
  static constexpr double factor = 1;
  template <class R>
  DEVICE R operator()(R x) const {
    return x;
  }
};
struct Scaled {
  double factor;
  DEVICE double operator()(double x) const { return x * factor; }
};

// Horner's scheme, highest power first.
template <class R, int kTerms>
DEVICE R polynomial(R x, const R (&coefficients)[kTerms]) {
  R value = coefficients[0];
#pragma unroll
  for (int i = 1; i < kTerms; ++i) value = fused(value, x, coefficients[i]);
  return value;
}

}  // namespace tensor_ops
