// Branch-free scalar arithmetic that the compiler vectorises, and that gives the same bits in a
// vector body and in its scalar tail: every operation is a correctly rounded IEEE one, and
// contraction into fma is off (-ffp-contract=off) except where fma() asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define TENSOR_OPS_INLINE inline __attribute__((always_inline))
// The same of a lambda, after its parameters.
#define TENSOR_OPS_INLINE_LAMBDA __attribute__((always_inline))
// A loop over 0 to a constant, all of whose rounds are compiled one behind the other, so that
// arrays that are indexed by `i` can be in registers.
#if defined(__clang__)
#define TENSOR_OPS_UNROLLED_FOR(i, count) \
  _Pragma("unroll") for (std::size_t i = 0; i < (count); ++i)
#else
#define TENSOR_OPS_UNROLLED_FOR(i, count) \
  _Pragma("GCC unroll 32") for (std::size_t i = 0; i < (count); ++i)
#endif
// Functions that few rows need are compiled to be small rather than fast.
#define TENSOR_OPS_RARE __attribute__((noinline, cold))

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

// The unsigned integer of the size of T, which is 2, 4 or 8 bytes.
template <class T>
using UnsignedOf =
    std::conditional_t<sizeof(T) == 2, std::uint16_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

// a * b + c, rounded once where the level has the instruction.
#if TENSOR_OPS_HAS_FMA
TENSOR_OPS_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TENSOR_OPS_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
TENSOR_OPS_INLINE float fma(float a, float b, float c) { return a * b + c; }
TENSOR_OPS_INLINE double fma(double a, double b, double c) { return a * b + c; }
#endif

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

template <class C>
TENSOR_OPS_INLINE bool is_minus_infinity(C x) {
  return x == -static_cast<C>(__builtin_inf());
}

template <class C>
TENSOR_OPS_INLINE bool is_finite(C x) {
  return x - x == 0;
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

// a rounded to 26 significant bits; a less that has 26 too. Unlike Veltkamp's split this overflows
// only where a rounds to infinity.
TENSOR_OPS_INLINE double upper_half(double a) {
  return bit_cast<double>((bit_cast<std::uint64_t>(a) + 0x4000000) & 0xFFFFFFFFF8000000);
}

TENSOR_OPS_INLINE Pair<double> exact_product(double a, double b) {
  const double hi = a * b;
#if TENSOR_OPS_HAS_FMA
  return {hi, fma(a, b, -hi)};
#else
  // Dekker's product of two halves each.
  const double ah = upper_half(a), bh = upper_half(b);
  const double al = a - ah, bl = b - bh;
  return {hi, ((ah * bh - hi) + ah * bl + al * bh) + al * bl};
#endif
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
