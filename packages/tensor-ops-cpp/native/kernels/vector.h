// Vectors of the level's register size: GCC's and clang's vector types, whose operators work lane
// by lane, and the few instructions that these have no word for.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t kVectorBytes = 64;
#define TENSOR_OPS_X86(instruction) _mm512_##instruction
#elif defined(__AVX2__)
constexpr std::size_t kVectorBytes = 32;
#define TENSOR_OPS_X86(instruction) _mm256_##instruction
#else
constexpr std::size_t kVectorBytes = 16;
#define TENSOR_OPS_X86(instruction) _mm_##instruction
#endif

// Lanes of a vector of C.
template <class C>
constexpr std::size_t kLanes = kVectorBytes / sizeof(C);

template <class T, std::size_t bytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(bytes)));
};
template <class T>
using Vector = typename VectorOf<T, kVectorBytes>::Type;
using Floats = Vector<float>;
using Doubles = Vector<double>;
// Becomes Floats when it is loaded.
using Halves = VectorOf<std::uint16_t, kVectorBytes / 2>::Type;

// The type of a lane.
template <class V>
using Lane = std::remove_reference_t<decltype(std::declval<V&>()[0])>;
// As many unsigned integers of the size of a lane.
template <class V>
using BitsOf = Vector<UnsignedOf<Lane<V>>>;

template <class V>
TENSOR_OPS_INLINE BitsOf<V> bits(V x) {
  return bit_cast<BitsOf<V>>(x);
}

template <class V>
TENSOR_OPS_INLINE V splat(Lane<V> value) {
  return V{} + value;
}

template <class V>
TENSOR_OPS_INLINE V magnitude_of(V x) {
  return bit_cast<V>(bits(x) & (static_cast<UnsignedOf<Lane<V>>>(-1) >> 1));
}

// A vector at any address.
template <class V>
TENSOR_OPS_INLINE V load_vector(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class V>
TENSOR_OPS_INLINE void store_vector(void* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

#if TENSOR_OPS_HAS_FMA && defined(__x86_64__)
TENSOR_OPS_INLINE Floats fma(Floats a, Floats b, Floats c) {
  return TENSOR_OPS_X86(fmadd_ps)(a, b, c);
}
TENSOR_OPS_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) {
  return TENSOR_OPS_X86(fmadd_pd)(a, b, c);
}
#elif defined(__aarch64__)
TENSOR_OPS_INLINE Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
TENSOR_OPS_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) { return vfmaq_f64(c, a, b); }
#else
TENSOR_OPS_INLINE Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
TENSOR_OPS_INLINE Doubles fma(Doubles a, Doubles b, Doubles c) { return a * b + c; }
#endif

// Horner's rule, of a number or of a vector; the coefficient of the highest power comes first.
template <class X, class C, std::size_t... I>
TENSOR_OPS_INLINE X horner(X value, X x, const C* coefficients, std::index_sequence<I...>) {
  ((value = fma(value, x, X{} + coefficients[I])), ...);
  return value;
}
template <class X, class C, std::size_t terms>
TENSOR_OPS_INLINE X polynomial(X x, const C (&coefficients)[terms]) {
  return horner(X{} + coefficients[0], x, coefficients + 1, std::make_index_sequence<terms - 1>());
}
// The same with one more coefficient, which is 1, before those given.
template <class X, class C, std::size_t terms>
TENSOR_OPS_INLINE X monic_polynomial(X x, const C (&coefficients)[terms]) {
  return horner(x + coefficients[0], x, coefficients + 1, std::make_index_sequence<terms - 1>());
}

// The result is b where one of two numbers is NaN.
#if defined(__x86_64__)
TENSOR_OPS_INLINE Floats larger(Floats a, Floats b) { return TENSOR_OPS_X86(max_ps)(a, b); }
TENSOR_OPS_INLINE Doubles larger(Doubles a, Doubles b) { return TENSOR_OPS_X86(max_pd)(a, b); }
TENSOR_OPS_INLINE Floats smaller(Floats a, Floats b) { return TENSOR_OPS_X86(min_ps)(a, b); }
TENSOR_OPS_INLINE Doubles smaller(Doubles a, Doubles b) { return TENSOR_OPS_X86(min_pd)(a, b); }
#else
template <class V>
TENSOR_OPS_INLINE V larger(V a, V b) {
  return a > b ? a : b;
}
template <class V>
TENSOR_OPS_INLINE V smaller(V a, V b) {
  return a < b ? a : b;
}
#endif

// a / b for an ordinary b: relative error about 2^-14 at most, enough for half types.
TENSOR_OPS_INLINE Floats rough_quotient(Floats a, Floats b) {
#if defined(__AVX512F__)
  return a * _mm512_rcp14_ps(b);
#else
  return a / b;
#endif
}

// table[i mod the number of lanes] for each lane i of an index.
#if defined(__AVX512F__)
constexpr std::size_t kFloatTable = 16, kDoubleTable = 8;
TENSOR_OPS_INLINE Floats look_up(Floats table, BitsOf<Floats> index) {
  return _mm512_permutexvar_ps(bit_cast<__m512i>(index), table);
}
TENSOR_OPS_INLINE Doubles look_up(Doubles table, BitsOf<Doubles> index) {
  return _mm512_permutexvar_pd(bit_cast<__m512i>(index), table);
}
#elif defined(__AVX2__)
constexpr std::size_t kFloatTable = 8, kDoubleTable = 1;
TENSOR_OPS_INLINE Floats look_up(Floats table, BitsOf<Floats> index) {
  return _mm256_permutevar8x32_ps(table, bit_cast<__m256i>(index));
}
#else
constexpr std::size_t kFloatTable = 1, kDoubleTable = 1;
#endif

// The largest magnitude of some vectors, by their bits: NaN is larger than any number.
template <class C>
class MagnitudeCheck {
  using V = Vector<C>;

 public:
  TENSOR_OPS_INLINE void include(V x) {
    const BitsOf<V> seen = bits(magnitude_of(x));
#if defined(__AVX512F__)
    if constexpr (sizeof(C) == 8)
      largest_ = bit_cast<BitsOf<V>>(
          _mm512_max_epu64(bit_cast<__m512i>(largest_), bit_cast<__m512i>(seen)));
    else
      largest_ = bit_cast<BitsOf<V>>(
          _mm512_max_epu32(bit_cast<__m512i>(largest_), bit_cast<__m512i>(seen)));
#elif defined(__AVX2__)
    if constexpr (sizeof(C) == 4)
      largest_ = bit_cast<BitsOf<V>>(
          _mm256_max_epu32(bit_cast<__m256i>(largest_), bit_cast<__m256i>(seen)));
    else
      largest_ = larger_signed(largest_, seen);
#else
    largest_ = larger_signed(largest_, seen);
#endif
  }

  TENSOR_OPS_INLINE bool at_most(C limit) const {
    const BitsOf<V> bound = bits(splat<V>(limit));
#if defined(__AVX512F__)
    if constexpr (sizeof(C) == 8)
      return _mm512_cmpgt_epu64_mask(bit_cast<__m512i>(largest_), bit_cast<__m512i>(bound)) == 0;
    else
      return _mm512_cmpgt_epu32_mask(bit_cast<__m512i>(largest_), bit_cast<__m512i>(bound)) == 0;
#elif defined(__AVX2__)
    const auto over = bit_cast<__m256i>(as_signed(largest_) > as_signed(bound));
    return _mm256_testz_si256(over, over);
#else
    for (std::size_t l = 0; l < kLanes<C>; ++l)
      if (largest_[l] > bound[l]) return false;
    return true;
#endif
  }
  TENSOR_OPS_INLINE bool is_finite() const {
    return at_most(static_cast<C>(sizeof(C) == sizeof(float) ? __FLT_MAX__ : __DBL_MAX__));
  }

 private:
  using Signed = Vector<std::make_signed_t<UnsignedOf<C>>>;
  static TENSOR_OPS_INLINE Signed as_signed(BitsOf<V> x) { return bit_cast<Signed>(x); }
  // The sign bits are clear.
  static TENSOR_OPS_INLINE BitsOf<V> larger_signed(BitsOf<V> a, BitsOf<V> b) {
    return as_signed(a) > as_signed(b) ? a : b;
  }

  BitsOf<V> largest_{};
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
