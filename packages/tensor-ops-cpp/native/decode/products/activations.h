// How products take the activations of a token.
#pragma once

#include <type_traits>

#include "decode/products/dot.h"
#include "decode/products/tile.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The prepare() of a kernel whose tokens are rows, each converted by itself.
template <void (*prepare)(const float* x, std::size_t columns, unsigned char* prepared)>
void in_rows(const float* x, std::size_t columns, unsigned char* prepared,
             std::size_t prepared_stride, std::size_t token, std::size_t) {
  prepare(x, columns, prepared + token * prepared_stride);
}

// float32 activations are followed by zeros up to a multiple of this many columns.
constexpr std::size_t kColumnStep = 4;

std::size_t float_bytes(std::size_t columns) {
  return (columns + kColumnStep - 1) / kColumnStep * kColumnStep * sizeof(float);
}

[[maybe_unused]] void prepare_floats(const float* x, std::size_t columns, unsigned char* prepared) {
  __builtin_memcpy(prepared, x, columns * sizeof *x);
  __builtin_memset(prepared + columns * sizeof *x, 0, float_bytes(columns) - columns * sizeof *x);
}

constexpr float kSecondTerm = 1.0f / 254;

// The integers of 32 activations: an activation is scale * q[0] or scale * (q[0] + q[1] / 254). Its
// error is at most 0.501 * scale with one term and 0.002 * scale with two, where scale is the
// largest magnitude of the block divided by 127, and 2^-142 more where that is subnormal.
template <std::size_t terms>
using Integers = std::int32_t[terms][kBlockColumns];

// A block of activations as products read it: the scale, the sum of the activations less the scale,
// the integers, and -8 times the sums of the integers of the first and the last 16 columns and of
// all 32. z / 8 times such a sum corrects a product with weights that still have their zero point z
// added.

// What `sum` is of all 32 columns, of the first or the last 16: of -8 times a sum of integers.
template <std::size_t terms>
TENSOR_OPS_INLINE float sum_from(std::int32_t minus_8_sum) {
  return static_cast<float>(minus_8_sum) * (terms == 1 ? -0.125f : -0.125f * kSecondTerm);
}

template <std::size_t terms>
struct Int8Block {
  float scale, sum;
  std::int32_t minus_8_sums[terms][2], minus_8_totals[terms];
  std::int8_t q[terms][kBlockColumns];

  TENSOR_OPS_INLINE void set(const Integers<terms>& integers);
  TENSOR_OPS_INLINE float half_sum(std::size_t half) const {
    const std::int32_t last = minus_8_sums[terms - 1][half];
    return sum_from<terms>(terms == 1 ? last : 254 * minus_8_sums[0][half] + last);
  }
};

// For the instructions of x86 that add two products at a time: of bytes, or of int16, which hold
// both terms.
template <std::size_t terms>
struct PairBlock;

#if TENSOR_OPS_X86_PAIRS

template <>
struct PairBlock<1> {
  float scale, sum;
  std::int32_t sum_times_16;
  // Sums for columns 0-1 and columns 2-3 of every four.
  std::int16_t minus_8_pairs[2][2], minus_8_pairs_of_all[2];
  std::int8_t q[kBlockColumns];

  TENSOR_OPS_INLINE void set(const Integers<1>& integers);
  TENSOR_OPS_INLINE float half_sum(std::size_t half) const {
    return sum_from<1>(minus_8_pairs[half][0] + minus_8_pairs[half][1]);
  }
};

#endif
#if TENSOR_OPS_JOINED_TERMS

template <>
struct PairBlock<2> {
  float scale, sum;
  std::int32_t minus_8_sums[2], minus_8_total;
#if defined(__AVX512VNNI__)
  // The products of columns 2i and 2i + 1, summed like the integers; they wrap.
  std::int32_t minus_products[2], minus_all_products;
#endif
  // 254 * q[0] + q[1]. Of each four columns, the first and the third come before the second and the
  // fourth, as a mask and a shift separate bytes of weights.
  std::int16_t q[kBlockColumns];

  TENSOR_OPS_INLINE void set(const Integers<2>& integers);
  TENSOR_OPS_INLINE float half_sum(std::size_t half) const {
    return sum_from<2>(minus_8_sums[half]);
  }
};

#endif

// The activations that products take, unless they say otherwise.
template <std::size_t terms>
using Activations = std::conditional_t<TENSOR_OPS_X86_PAIRS, PairBlock<terms>, Int8Block<terms>>;

template <class V>
struct Halved {
  typename VectorOf<std::int32_t, sizeof(V) / 2>::Type low, high;
};

template <class V>
TENSOR_OPS_INLINE std::int32_t largest_lane(V v) {
  if constexpr (sizeof(V) == 8) {
    return v[0] > v[1] ? v[0] : v[1];
  } else {
    const auto parts = bit_cast<Halved<V>>(v);
    return largest_lane(parts.low > parts.high ? parts.low : parts.high);
  }
}

template <class V>
TENSOR_OPS_INLINE std::int32_t sum_of_lanes(V v) {
  if constexpr (sizeof(V) == 8) {
    return v[0] + v[1];
  } else {
    const auto parts = bit_cast<Halved<V>>(v);
    return sum_of_lanes(parts.low + parts.high);
  }
}

TENSOR_OPS_INLINE float largest_magnitude(const float* x) {
  Ints largest{};  // magnitudes are ordered as their bits are
  for (std::size_t i = 0; i < kBlockColumns; i += kLanes<float>) {
    const auto seen = bit_cast<Ints>(magnitude_of(load_vector<Floats>(x + i)));
    largest = seen > largest ? seen : largest;
  }
  return bit_cast<float>(largest_lane(largest));
}

TENSOR_OPS_INLINE std::int32_t sum_of_half(const std::int32_t* integers) {
  Ints sum{};
  for (std::size_t i = 0; i < kBlockColumns / 2; i += kLanes<float>)
    sum += load_vector<Ints>(integers + i);
  return sum_of_lanes(sum);
}

// Stores the integers of a half of a block, which are from -127 to 127 or of a block whose scale is
// NaN, as bytes, and returns their sum.
#if defined(__x86_64__)
TENSOR_OPS_INLINE std::int32_t store_half(std::int8_t* to, const std::int32_t* integers) {
  Ints q[kBlockColumns / 2 / kLanes<float>];
  __builtin_memcpy(q, integers, sizeof q);
#if defined(__AVX512F__)
  const __m128i bytes = _mm512_cvtepi32_epi8(bit_cast<__m512i>(q[0]));
#elif defined(__AVX2__)
  const __m256i pairs = _mm256_packs_epi32(bit_cast<__m256i>(q[0]), bit_cast<__m256i>(q[1]));
  const __m128i bytes = _mm_shuffle_epi32(
      _mm_packs_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1)), 0xD8);
#else
  const __m128i bytes =
      _mm_packs_epi16(_mm_packs_epi32(bit_cast<__m128i>(q[0]), bit_cast<__m128i>(q[1])),
                      _mm_packs_epi32(bit_cast<__m128i>(q[2]), bit_cast<__m128i>(q[3])));
#endif
  store_vector(to, bytes);
  // The instruction adds unsigned bytes, eight at a time: they are made so by adding 128.
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), __m128i{});
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums))) - 16 * 128;
}
#else
TENSOR_OPS_INLINE std::int32_t store_half(std::int8_t* to, const std::int32_t* integers) {
  for (std::size_t i = 0; i < kBlockColumns / 2; ++i) to[i] = static_cast<std::int8_t>(integers[i]);
  return sum_of_half(integers);
}
#endif

template <std::size_t terms>
TENSOR_OPS_INLINE void Int8Block<terms>::set(const Integers<terms>& integers) {
  std::int32_t total = 0;
  for (std::size_t term = 0; term < terms; ++term) {
    constexpr std::size_t half = kBlockColumns / 2;
    const std::int32_t first = store_half(q[term], integers[term]);
    const std::int32_t last = store_half(q[term] + half, integers[term] + half);
    minus_8_sums[term][0] = -8 * first;
    minus_8_sums[term][1] = -8 * last;
    minus_8_totals[term] = -8 * (first + last);
    total = 254 * total + first + last;
  }
  sum = static_cast<float>(total) * (terms == 1 ? 1 : kSecondTerm);
}

#if TENSOR_OPS_X86_PAIRS

TENSOR_OPS_INLINE void PairBlock<1>::set(const Integers<1>& integers) {
  for (std::size_t i = 0; i < kBlockColumns; i += kBlockColumns / 2)
    store_half(q + i, integers[0] + i);
  typename VectorOf<std::int16_t, 16>::Type all{};
  for (std::size_t half = 0; half < 2; ++half) {
    const auto bytes = load_vector<__m128i>(q + half * kBlockColumns / 2);
    auto pairs = bit_cast<decltype(all)>(_mm_maddubs_epi16(_mm_set1_epi8(1), bytes));
    pairs += bit_cast<decltype(all)>(_mm_shuffle_epi32(bit_cast<__m128i>(pairs), 0x4E));
    pairs += bit_cast<decltype(all)>(_mm_shuffle_epi32(bit_cast<__m128i>(pairs), 0xB1));
    all += pairs;
    for (std::size_t i = 0; i < 2; ++i)
      minus_8_pairs[half][i] = static_cast<std::int16_t>(-8 * pairs[i]);
  }
  for (std::size_t i = 0; i < 2; ++i)
    minus_8_pairs_of_all[i] = static_cast<std::int16_t>(-8 * all[i]);
  const std::int32_t total = all[0] + all[1];
  sum_times_16 = 16 * total;
  sum = static_cast<float>(total);
}

#endif
#if TENSOR_OPS_JOINED_TERMS

#if defined(__AVX512F__)

TENSOR_OPS_INLINE void PairBlock<2>::set(const Integers<2>& integers) {
  constexpr std::size_t half = kBlockColumns / 2;
  Ints joined[2];
  for (std::size_t i = 0; i < 2; ++i)
    joined[i] =
        load_vector<Ints>(integers[0] + i * half) * 254 + load_vector<Ints>(integers[1] + i * half);
  alignas(64) static constexpr std::int16_t places[kBlockColumns] = {
      0,  4,  2,  6,  8,  12, 10, 14, 16, 20, 18, 22, 24, 28, 26, 30,
      32, 36, 34, 38, 40, 44, 42, 46, 48, 52, 50, 54, 56, 60, 58, 62};
  const __m512i pairs = _mm512_permutex2var_epi16(
      bit_cast<__m512i>(joined[0]), load_vector<__m512i>(places), bit_cast<__m512i>(joined[1]));
  store_vector(q, pairs);

  // Sums of four columns: of products in the first of two lanes, of the integers in the second.
  // The sums of each half of the block are added up in its first two lanes.
  const __m512i others = _mm512_maskz_shuffle_epi32(0x5555, pairs, _MM_PERM_CDAB);
  const __m512i products = _mm512_madd_epi16(pairs, others);
  const __m512i of_two = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  const __m512i of_four = _mm512_add_epi32(of_two, _mm512_shuffle_epi32(of_two, _MM_PERM_CDAB));
  __m512i sums = _mm512_mask_mov_epi32(products, 0xAAAA, of_four);
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
  sums = _mm512_add_epi32(sums, _mm512_shuffle_i64x2(sums, sums, 0xB1));
  const std::int64_t halves[] = {_mm_cvtsi128_si64(_mm512_castsi512_si128(sums)),
                                 _mm_cvtsi128_si64(_mm512_extracti32x4_epi32(sums, 2))};
  [[maybe_unused]] std::uint32_t all_products = 0;
  std::int32_t all = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto of_products = static_cast<std::uint32_t>(halves[i]);
    const auto of_integers = static_cast<std::int32_t>(halves[i] >> 32);
    all_products += of_products;
    all += of_integers;
    minus_8_sums[i] = -8 * of_integers;
#if defined(__AVX512VNNI__)
    minus_products[i] = static_cast<std::int32_t>(-of_products);
#endif
  }
#if defined(__AVX512VNNI__)
  minus_all_products = static_cast<std::int32_t>(-all_products);
#endif
  minus_8_total = -8 * all;
  sum = static_cast<float>(all) * kSecondTerm;
}

#else

TENSOR_OPS_INLINE void PairBlock<2>::set(const Integers<2>& integers) {
  std::int32_t joined[kBlockColumns];
  for (std::size_t i = 0; i < kBlockColumns; i += kLanes<float>)
    store_vector(joined + i,
                 load_vector<Ints>(integers[0] + i) * 254 + load_vector<Ints>(integers[1] + i));
  for (std::size_t i = 0; i < kBlockColumns; i += 4) {
    constexpr std::uint64_t lower = 0x0000FFFF0000FFFF;
    std::uint64_t two[2];
    __builtin_memcpy(two, joined + i, sizeof two);
    const std::uint64_t four = (two[0] & lower) | (two[1] & lower) << 16;
    __builtin_memcpy(q + i, &four, sizeof four);
  }
  const std::int32_t first = sum_of_half(joined), last = sum_of_half(joined + kBlockColumns / 2);
  minus_8_sums[0] = -8 * first;
  minus_8_sums[1] = -8 * last;
  minus_8_total = -8 * (first + last);
  sum = static_cast<float>(first + last) * kSecondTerm;
}

#endif
#endif

template <std::size_t terms, class Block>
TENSOR_OPS_INLINE void prepare_block(const float* x, float magnitude, Block& block) {
  // 127 divided by a number close to zero would be infinite.
  const float up = magnitude < 0x1p-100f ? 0x1p100f : 1.0f;
  const float inverse = magnitude > 0 ? 127 / (magnitude * up) : 0.0f;
  block.scale = is_finite(magnitude) ? magnitude / 127 : __builtin_nanf("");
  constexpr std::size_t vectors = kBlockColumns / kLanes<float>;
  Floats rest[vectors];
  for (std::size_t v = 0; v < vectors; ++v)
    rest[v] = load_vector<Floats>(x + v * kLanes<float>) * up * inverse;

  // A non-finite block gets zeros, since sums of its integers could overflow; its scale is NaN.
  const Ints kept = splat<Ints>(is_finite(magnitude) ? -1 : 0);
  Integers<terms> integers;
  for (std::size_t term = 0; term < terms; ++term)
    for (std::size_t v = 0; v < vectors; ++v) {
      // Adding 1.5 * 2^23 rounds to an integer, and the bits of the sum grow by that integer.
      const Floats rounded = rest[v] + 0x1.8p23f;
      const Ints integer = bit_cast<Ints>(rounded) - bit_cast<std::int32_t>(0x1.8p23f);
      store_vector(integers[term] + v * kLanes<float>, integer & kept);
      rest[v] = (rest[v] - (rounded - 0x1.8p23f)) * 254;
    }
  block.set(integers);
}

template <std::size_t terms, class Block = Activations<terms>>
std::size_t int8_bytes(std::size_t columns) {
  return columns / kBlockColumns * sizeof(Block);
}

template <std::size_t terms, class Block = Activations<terms>>
void prepare_int8(const float* x, std::size_t columns, unsigned char* prepared) {
  auto* blocks = reinterpret_cast<Block*>(prepared);
  const std::size_t count = columns / kBlockColumns;
  // In two passes, since the instructions of a block depend on each other: a CPU works on more
  // blocks at a time if each takes fewer instructions.
  for (std::size_t b = 0; b < count; ++b)
    blocks[b].scale = largest_magnitude(x + b * kBlockColumns);
  for (std::size_t b = 0; b < count; ++b)
    prepare_block<terms>(x + b * kBlockColumns, blocks[b].scale, blocks[b]);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
