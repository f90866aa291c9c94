// Dot products of bytes, the same integers on every level: a lane has four weights of its row, and
// all lanes multiply them by the same four activations.
#pragma once

#include "decode/products/tile.h"
#include "kernels/vector.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using Ints = Vector<std::int32_t>;
using Shorts = Vector<std::int16_t>;
using Words = BitsOf<Floats>;  // four bytes to a lane

constexpr std::size_t kDotWords = 4;  // 16 columns

// How many vectors the 16 lanes of a tile fill.
constexpr std::size_t kParts = kLineBytes / kVectorBytes;

// Four activations in int8, or two in int16.
TENSOR_OPS_INLINE Ints splat_word(const void* x) {
  std::int32_t word;
  __builtin_memcpy(&word, x, sizeof word);
  return splat<Ints>(word);
}

// Computes v at this place, in the order of the source. GCC would reassociate and move sums of
// integers, so that more products are live than there are registers.
template <class V>
TENSOR_OPS_INLINE void compute_here([[maybe_unused]] V& v) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(v));
#elif defined(__x86_64__)
  asm volatile("" : "+x"(v));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(v));
#endif
}

// Keeps the compiler from holding earlier reads of memory in registers: it reads again.
TENSOR_OPS_INLINE void forget_memory() { asm volatile("" : : : "memory"); }

// w & mask. Where a format needs more masks than there are registers, they are read from memory.
template <std::uint32_t mask>
TENSOR_OPS_INLINE Words masked(Words w) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  alignas(kVectorBytes) static constexpr std::uint32_t masks[] = {mask, mask, mask, mask,
                                                                  mask, mask, mask, mask};
  Words result;
  asm("vpand %2, %1, %0" : "=x"(result) : "x"(w), "m"(masks));
  return result;
#else
  return w & mask;
#endif
}

// The first and the third byte of each word, in 16 bits each.
TENSOR_OPS_INLINE Words even_bytes(Words w) {
#if defined(__AVX512F__)
  // The sums take all registers but those for the masks of a format.
  static constexpr std::uint32_t mask = 0x00FF00FF;
  Words result;
  asm("vpandd %2%{1to16%}, %1, %0" : "=v"(result) : "v"(w), "m"(mask));
  return result;
#else
  return masked<0x00FF00FF>(w);
#endif
}

TENSOR_OPS_INLINE Words shifted_pairs(Words w, std::size_t bits) {
  return bit_cast<Words>(bit_cast<Vector<std::uint16_t>>(w) >> bits);
}

// GCC takes three instructions for this.
TENSOR_OPS_INLINE Words widened(Halves x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return bit_cast<Words>(_mm256_cvtepu16_epi32(bit_cast<__m128i>(x)));
#else
  return __builtin_convertvector(x, Words);
#endif
}

// Whether x86 has instructions only for sums of two neighbouring products. All other levels have
// dot(), some as one instruction.
#if defined(__x86_64__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__) && \
    !defined(TENSOR_OPS_EMULATE_DOTS)
#define TENSOR_OPS_X86_PAIRS 1
#else
#define TENSOR_OPS_X86_PAIRS 0
#endif

// Whether there are products of int16, which hold both terms of an activation.
#if TENSOR_OPS_X86_PAIRS || defined(__AVX512VNNI__)
#define TENSOR_OPS_JOINED_TERMS 1
#else
#define TENSOR_OPS_JOINED_TERMS 0
#endif

// Whether dot() takes weights from 128 to 255. Where it does not, such a format has signed weights:
// signed_bytes() subtracts 128.
#if defined(__x86_64__)
constexpr bool kTakesAnyByte = !TENSOR_OPS_X86_PAIRS;
#else
constexpr bool kTakesAnyByte = false;
#endif

TENSOR_OPS_INLINE Words signed_bytes(Words w) { return w ^ 0x80808080u; }

#if TENSOR_OPS_JOINED_TERMS

using Register = Vector<long long>;  // what intrinsics take

// Each lane is the sum of two neighbouring products of int16.
TENSOR_OPS_INLINE Ints sums_of_two_shorts(Shorts w, Shorts x) {
  return bit_cast<Ints>(TENSOR_OPS_X86(madd_epi16)(bit_cast<Register>(w), bit_cast<Register>(x)));
}

// start + such sums.
TENSOR_OPS_INLINE Ints dot_shorts(Ints start, Shorts w, Shorts x) {
#if defined(__AVX512VNNI__)
  return bit_cast<Ints>(
      _mm512_dpwssd_epi32(bit_cast<__m512i>(start), bit_cast<__m512i>(w), bit_cast<__m512i>(x)));
#else
  return start + sums_of_two_shorts(w, x);
#endif
}

#endif
#if TENSOR_OPS_X86_PAIRS

// The same of unsigned and signed bytes. The sums saturate at 16 bits, so that weights may be at
// most 32767 / 254.
TENSOR_OPS_INLINE Shorts sums_of_two(Words w, Ints x) {
  return bit_cast<Shorts>(
      TENSOR_OPS_X86(maddubs_epi16)(bit_cast<Register>(w), bit_cast<Register>(x)));
}

// The same of signed weights: their signs are moved to the activations.
TENSOR_OPS_INLINE Shorts sums_of_two_signed(Words w, Ints x) {
#if defined(__AVX512F__)
  using Bytes = Vector<std::int8_t>;
  const auto bytes = bit_cast<Bytes>(x);
  x = bit_cast<Ints>(bit_cast<Bytes>(w) < 0 ? -bytes : bytes);
#else
  x = bit_cast<Ints>(TENSOR_OPS_X86(sign_epi8)(bit_cast<Register>(x), bit_cast<Register>(w)));
#endif
  return sums_of_two(bit_cast<Words>(TENSOR_OPS_X86(abs_epi8)(bit_cast<Register>(w))), x);
}

#else

// start + w x. The weights are signed bytes, or unsigned ones if the level takes any byte or if
// none is over 127; the activations are from -127 to 127.
#if defined(TENSOR_OPS_EMULATE_DOTS)

TENSOR_OPS_INLINE Ints dot(Ints start, Words w, Ints x) {
  for (std::size_t i = 0; i < 4; ++i)
    start += bit_cast<Ints>(w >> (8 * i) & 255u) * (x << (24 - 8 * i) >> 24);
  return start;
}

#elif defined(__AVX512VNNI__)

TENSOR_OPS_INLINE Ints dot(Ints start, Words w, Ints x) {
  return bit_cast<Ints>(
      _mm512_dpbusd_epi32(bit_cast<__m512i>(start), bit_cast<__m512i>(w), bit_cast<__m512i>(x)));
}

#elif defined(__AVXVNNI__)

TENSOR_OPS_INLINE Ints dot(Ints start, Words w, Ints x) {
  return bit_cast<Ints>(_mm256_dpbusd_avx_epi32(bit_cast<__m256i>(start), bit_cast<__m256i>(w),
                                                bit_cast<__m256i>(x)));
}

#elif defined(__aarch64__)

TENSOR_OPS_INLINE Ints dot(Ints start, Words w, Ints x) {
  const auto weights = bit_cast<int8x16_t>(w), activations = bit_cast<int8x16_t>(x);
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(start, weights, activations);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(activations));
  const int16x8_t high = vmull_high_s8(weights, activations);
  return start + vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
#endif
}

#else

TENSOR_OPS_INLINE Ints dot(Ints start, Words w, Ints x) {
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t up = 24 - 8 * i;
    start += (bit_cast<Ints>(w << up) >> 24) * (x << up >> 24);
  }
  return start;
}

#endif
#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
