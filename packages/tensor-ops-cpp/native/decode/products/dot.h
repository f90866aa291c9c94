// Dot products of bytes, the same integers on every level: a lane has four weights of its row, and
// all lanes multiply them by the same four activations.
#pragma once

#include "kernels/vector.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using Ints = Vector<std::int32_t>;
using Words = BitsOf<Floats>;  // four bytes to a lane

constexpr std::size_t kDotWords = 4;  // 16 columns

TENSOR_OPS_INLINE Ints splat_word(const std::int8_t* x) {
  std::int32_t word;
  __builtin_memcpy(&word, x, sizeof word);
  return splat<Ints>(word);
}

// Whether weights from 128 to 255 can be multiplied as they are. Elsewhere such a format has signed
// weights: signed_bytes() subtracts 128.
#if defined(__AVX512VNNI__)
constexpr bool kTakesAnyByte = true;
#else
constexpr bool kTakesAnyByte = false;
#endif

TENSOR_OPS_INLINE Words signed_bytes(Words w) { return w ^ 0x80808080u; }

// start + w x, over 16 columns. The weights are from 0 to `largest`, or signed bytes if `largest`
// is over 127 and the level does not take any byte. The activations are from -127 to 127.
#if defined(__AVX512VNNI__)

template <int largest>
TENSOR_OPS_INLINE Ints dot(Ints start, const Words* w, const std::int8_t* x) {
  auto sum = bit_cast<__m512i>(start);
  for (std::size_t j = 0; j < kDotWords; ++j)
    sum =
        _mm512_dpbusd_epi32(sum, bit_cast<__m512i>(w[j]), bit_cast<__m512i>(splat_word(x + 4 * j)));
  return bit_cast<Ints>(sum);
}

#elif defined(__x86_64__)

using Bytes = Vector<std::int8_t>;
using Shorts = Vector<std::int16_t>;
using Register = Vector<long long>;  // what intrinsics take

// Sums of two neighbouring products. They saturate at 16 bits, so that unsigned weights may be at
// most 32767 / 254. The signs of signed weights are moved to the activations.
template <int largest>
TENSOR_OPS_INLINE Shorts sums_of_two(Words words, Ints activations) {
  auto w = bit_cast<Register>(words), x = bit_cast<Register>(activations);
  if constexpr (largest > 127) {
#if defined(__AVX512F__)
    x = bit_cast<Register>(bit_cast<Bytes>(w) < 0 ? -bit_cast<Bytes>(x) : bit_cast<Bytes>(x));
#else
    x = bit_cast<Register>(TENSOR_OPS_X86(sign_epi8)(x, w));
#endif
    w = bit_cast<Register>(TENSOR_OPS_X86(abs_epi8)(w));
  }
  return bit_cast<Shorts>(TENSOR_OPS_X86(maddubs_epi16)(w, x));
}

template <int largest>
TENSOR_OPS_INLINE Ints dot(Ints start, const Words* w, const std::int8_t* x) {
  // Adds as many sums of two as 16 bits can hold.
  constexpr std::size_t fit = largest > 127 ? 1 : 32767 / (2 * 127 * largest);
  static_assert(fit >= 1);
  constexpr std::size_t run = fit < kDotWords ? fit : kDotWords;
  const auto ones = bit_cast<Register>(splat<Shorts>(1));
  for (std::size_t j = 0; j < kDotWords; j += run) {
    Shorts sums = sums_of_two<largest>(w[j], splat_word(x + 4 * j));
    for (std::size_t i = j + 1; i < j + run && i < kDotWords; ++i)
      sums += sums_of_two<largest>(w[i], splat_word(x + 4 * i));
    start += bit_cast<Ints>(TENSOR_OPS_X86(madd_epi16)(bit_cast<Register>(sums), ones));
  }
  return start;
}

#elif defined(__aarch64__)

template <int largest>
TENSOR_OPS_INLINE Ints dot(Ints start, const Words* w, const std::int8_t* x) {
  for (std::size_t j = 0; j < kDotWords; ++j) {
    const auto weights = bit_cast<int8x16_t>(w[j]);
    const auto activations = bit_cast<int8x16_t>(splat_word(x + 4 * j));
#if defined(__ARM_FEATURE_DOTPROD)
    start = vdotq_s32(start, weights, activations);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(activations));
    const int16x8_t high = vmull_high_s8(weights, activations);
    start += vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
#endif
  }
  return start;
}

#else

template <int largest>
TENSOR_OPS_INLINE Ints dot(Ints start, const Words* w, const std::int8_t* x) {
  for (std::size_t j = 0; j < kDotWords; ++j)
    for (std::size_t i = 0; i < 4; ++i)
      start += (bit_cast<Ints>(w[j] << (24 - 8 * i)) >> 24) * x[4 * j + i];
  return start;
}

#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
