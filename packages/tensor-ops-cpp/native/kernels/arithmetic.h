// Branch-free scalar arithmetic that the compiler vectorises, and that gives the same bits in a
// vector body and in its scalar tail: every operation is a correctly rounded IEEE one, and
// contraction into fma is off (-ffp-contract=off) except where fma() asks for it.
#pragma once

#include <cstddef>
#include <cstdint>

#define TENSOR_OPS_INLINE inline __attribute__((always_inline))

#if defined(__FMA__) || defined(__aarch64__)
#define TENSOR_OPS_HAS_FMA 1
#else
#define TENSOR_OPS_HAS_FMA 0
#endif

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class To, class From>
TENSOR_OPS_INLINE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// a * b + c, rounded once where the level has the instruction.
TENSOR_OPS_INLINE float fma(float a, float b, float c) {
#if TENSOR_OPS_HAS_FMA
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

TENSOR_OPS_INLINE double fma(double a, double b, double c) {
#if TENSOR_OPS_HAS_FMA
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

TENSOR_OPS_INLINE float magnitude(float x) { return __builtin_fabsf(x); }
TENSOR_OPS_INLINE double magnitude(double x) { return __builtin_fabs(x); }

// NaN in x stays NaN.
template <class C>
TENSOR_OPS_INLINE C at_least(C x, C low) {
  return x < low ? low : x;
}
template <class C>
TENSOR_OPS_INLINE C at_most(C x, C high) {
  return x > high ? high : x;
}

// The unevaluated sum hi + lo, with |lo| at most half a unit in the last place of hi.
template <class C>
struct Pair {
  C hi, lo;
};

// a + b exactly (Knuth).
template <class C>
TENSOR_OPS_INLINE Pair<C> exact_sum(C a, C b) {
  const C hi = a + b;
  const C t = hi - a;
  return {hi, (a - (hi - t)) + (b - t)};
}

// a + b exactly, given |a| >= |b| or a == 0 (Dekker).
template <class C>
TENSOR_OPS_INLINE Pair<C> exact_sum_ordered(C a, C b) {
  const C hi = a + b;
  return {hi, b - (hi - a)};
}

// a * b exactly, barring overflow and underflow.
TENSOR_OPS_INLINE Pair<float> exact_product(float a, float b) {
#if TENSOR_OPS_HAS_FMA
  const float hi = a * b;
  return {hi, fma(a, b, -hi)};
#else
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const float hi = static_cast<float>(product);
  return {hi, static_cast<float>(product - static_cast<double>(hi))};
#endif
}

TENSOR_OPS_INLINE Pair<double> exact_product(double a, double b) {
  const double hi = a * b;
#if TENSOR_OPS_HAS_FMA
  return {hi, fma(a, b, -hi)};
#else
  // Veltkamp's split into two halves of 26 bits, then Dekker's product.
  constexpr double splitter = 0x1p27 + 1;
  const double ta = splitter * a, tb = splitter * b;
  const double ah = ta - (ta - a), bh = tb - (tb - b);
  const double al = a - ah, bl = b - bh;
  return {hi, ((ah * bh - hi) + ah * bl + al * bh) + al * bl};
#endif
}

// Horner's rule; the coefficient of the highest power comes first.
template <class C, class... Rest>
TENSOR_OPS_INLINE C polynomial(C x, C highest, Rest... rest) {
  C value = highest;
  ((value = fma(value, x, static_cast<C>(rest))), ...);
  return value;
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
