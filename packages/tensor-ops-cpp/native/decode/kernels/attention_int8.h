// Attention to a range of positions whose keys and values are int8 with scales: queries and weights
// are rounded to int16, so that the sums within a scale are of integers.
#pragma once

#include "decode/kernels/attention_floats.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Integers in pairs, each of int16.
using Words = VectorOf<std::int16_t, kVectorBytes>::Type;
using Ints = VectorOf<std::int32_t, kVectorBytes>::Type;

// As many pairs of int8 as a vector of float has lanes.
TENSOR_OPS_INLINE Words load_pairs(const std::int8_t* from) {
#if defined(__AVX512F__)
  return bit_cast<Words>(_mm512_cvtepi8_epi16(load_vector<__m256i>(from)));
#elif defined(__AVX2__)
  return bit_cast<Words>(_mm256_cvtepi8_epi16(load_vector<__m128i>(from)));
#elif defined(__x86_64__)
  return bit_cast<Words>(
      _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  return __builtin_convertvector(load_vector<VectorOf<std::int8_t, kVectorBytes / 2>::Type>(from),
                                 Words);
#endif
}

// One pair in all lanes.
TENSOR_OPS_INLINE Words broadcast_pair(const std::int16_t* from) {
  std::uint32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return bit_cast<Words>(BitsOf<Floats>{} + pair);
}

// The sum of both products of each pair.
TENSOR_OPS_INLINE Ints products(Words a, Words b) {
#if defined(__AVX512F__)
  return bit_cast<Ints>(_mm512_madd_epi16(bit_cast<__m512i>(a), bit_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return bit_cast<Ints>(_mm256_madd_epi16(bit_cast<__m256i>(a), bit_cast<__m256i>(b)));
#elif defined(__x86_64__)
  return bit_cast<Ints>(_mm_madd_epi16(bit_cast<__m128i>(a), bit_cast<__m128i>(b)));
#elif defined(__aarch64__)
  return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
#endif
}

// Rounds numbers to int16, whose range is their largest magnitude, and returns the size of a step.
// A sum of 128 such weights, or of 32 elements of a query, times int8 stays within int32. Infinity
// and NaN become 0, and the step infinite or NaN.
TENSOR_OPS_INLINE float to_words(const float* from, std::size_t count, std::int16_t* to) {
  constexpr float kSteps = 32767.0f, kLeast = 0x1p-100f;
  const float most = largest_magnitude(from, count);
  const bool is_ordinary = most >= kLeast && most <= __FLT_MAX__;
  const float steps = is_ordinary ? kSteps / most : 0.0f;
  if (is_ordinary) {
    for (std::size_t i = 0; i < count; ++i)
      to[i] = static_cast<std::int16_t>(static_cast<std::int32_t>(whole(from[i] * steps)));
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = 0;
  }
  return most / kSteps;
}

// A query head in the memory of an Int8HeadLayout.
struct Int8Head {
  std::int16_t* elements;
  float* steps;

  TENSOR_OPS_INLINE Int8Head(float* memory, std::size_t size)
      : elements(reinterpret_cast<std::int16_t*>(memory)),
        steps(memory + decode::Int8HeadLayout(size).steps) {}

  void fill(const float* from, std::size_t size) const {
    for (std::size_t g = 0; g < decode::scales_of(size); ++g) {
      const std::size_t d = g * decode::kScaledElements, left = size - d;
      steps[g] = to_words(from + d, left < decode::kScaledElements ? left : decode::kScaledElements,
                          elements + d);
    }
    if (size % 2) elements[size] = 0;
  }
};

template <std::size_t heads>
struct Query<Int8, heads> : RangeQuery<Int8> {
  void run() const {
    const std::size_t stride = seen.count * kBlock;
    score(stride);
    for (std::size_t h = 0; h < heads; ++h) exponentials(h, scores() + h * stride, stride);
    for (std::size_t g = 0; g < decode::scales_of(sizes.head); ++g) scale_weights(g, stride);
    std::size_t d = 0;
    for (; d + kValueVectors * kLanes<float> <= sizes.head; d += kValueVectors * kLanes<float>)
      weigh_values(d, stride, Whole<kValueVectors>{});
    for (; d + kLanes<float> <= sizes.head; d += kLanes<float>) weigh_values(d, stride, Whole<1>{});
    if (d < sizes.head) weigh_values(d, stride, PartialVector{sizes.head - d});
  }

 private:
  TENSOR_OPS_INLINE decode::Int8QueryLayout layout(std::size_t stride) const {
    return {heads, stride, sizes.head};
  }
  TENSOR_OPS_INLINE float* scores() const { return scratch; }
  TENSOR_OPS_INLINE float* scaled(std::size_t stride) const {
    return scratch + layout(stride).scaled;
  }
  TENSOR_OPS_INLINE float* steps(std::size_t stride) const {
    return scratch + layout(stride).steps;
  }
  TENSOR_OPS_INLINE std::int16_t* weights(std::size_t g, std::size_t stride) const {
    float* const first = scratch + layout(stride).weights;
    return reinterpret_cast<std::int16_t*>(first) + g * heads * stride;
  }

  // Prefetches the rest of half a block: its scales.
  TENSOR_OPS_INLINE void fetch_rest(Ahead next) const {
    next.fetch(kBlock * sizes.head, half_bytes() - kBlock * sizes.head);
  }

  void score(std::size_t stride) const {
    float* to = scores();
    for_blocks(false, [&](const CacheBlock<Int8>& block, std::size_t from, std::size_t end,
                          Ahead next) TENSOR_OPS_INLINE_LAMBDA {
      score_block(block, next, to, stride);
      fetch_rest(next);
      for (std::size_t h = 0; h < heads; ++h) finish_scores(to + h * stride, from, end);
      to += kBlock;
    });
  }

  TENSOR_OPS_INLINE Int8Head head(std::size_t h) const {
    return {const_cast<float*>(q) + h * decode::Int8HeadLayout(sizes.head).floats, sizes.head};
  }

  TENSOR_OPS_INLINE void score_block(const CacheBlock<Int8>& block, Ahead next, float* to,
                                     std::size_t stride) const {
    constexpr std::size_t kPairs = decode::kScaledElements / 2, kInLine = 2;
    const std::size_t pairs = (sizes.head + 1) / 2;
    const std::int8_t* const keys = block.keys();
    Floats total[heads][kBlockVectors] = {};
    for (std::size_t first = 0; first < pairs; first += kPairs) {
      const std::size_t end = first + kPairs < pairs ? first + kPairs : pairs;
      Ints sums[heads][kBlockVectors] = {};
      for (std::size_t pair = first; pair < end; ++pair) {
        if (pair % kInLine == 0) next.fetch(pair * 2 * kBlock, 1);
        for (std::size_t v = 0; v < kBlockVectors; ++v) {
          const Words key = load_pairs(keys + 2 * (pair * kBlock + v * kLanes<float>));
          for (std::size_t h = 0; h < heads; ++h)
            sums[h][v] += products(key, broadcast_pair(head(h).elements + 2 * pair));
        }
      }
      const std::size_t g = first / kPairs;
      for (std::size_t v = 0; v < kBlockVectors; ++v) {
        const Floats scale = Float16::widen(
            load_vector<Halves>(block.key_scales() + g * kBlock + v * kLanes<float>));
        for (std::size_t h = 0; h < heads; ++h)
          total[h][v] = fma(__builtin_convertvector(sums[h][v], Floats) * head(h).steps[g], scale,
                            total[h][v]);
      }
    }
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t v = 0; v < kBlockVectors; ++v)
        store_vector(to + h * stride + v * kLanes<float>, total[h][v]);
  }

  // The weights of positions times the scales of one group of elements of their values. The scale
  // of a position that is not seen may be anything.
  void scale_weights(std::size_t g, std::size_t stride) const {
    std::size_t i = 0;
    for_blocks(false, [&](const CacheBlock<Int8>& block, auto...) TENSOR_OPS_INLINE_LAMBDA {
      for (std::size_t v = 0; v < kBlock; v += kLanes<float>) {
        const Floats scale =
            Float16::widen(load_vector<Halves>(block.value_scales() + g * kBlock + v));
        for (std::size_t h = 0; h < heads; ++h) {
          const Floats weight = load_vector<Floats>(scores() + h * stride + i + v), zero{};
          store_vector(scaled(stride) + h * stride + i + v, weight == zero ? zero : weight * scale);
        }
      }
      i += kBlock;
    });
    for (std::size_t h = 0; h < heads; ++h)
      steps(stride)[g * heads + h] =
          to_words(scaled(stride) + h * stride, stride, weights(g, stride) + h * stride);
  }

  // Elements of the results from d on.
  template <class Extent>
  TENSOR_OPS_INLINE void weigh_values(std::size_t d, std::size_t stride, Extent extent) const {
    constexpr std::size_t kWeights = decode::kScaledElements / kLanes<float>;  // vectors of a group
    const std::size_t first_group = d / decode::kScaledElements;
    const std::int16_t* row = weights(first_group, stride);
    Ints total[heads][Extent::vectors] = {};
    for_blocks(true, [&](const CacheBlock<Int8>& block, std::size_t, std::size_t,
                         Ahead next) TENSOR_OPS_INLINE_LAMBDA {
      const std::int8_t* const values = block.values() + 2 * d;
      for (std::size_t p = 0; p < kBlock; p += 2) {
        next.fetch(p * sizes.head + 2 * d, 2 * Extent::vectors * kLanes<float>);
        for (std::size_t v = 0; v < Extent::vectors; v += kWeights) {
          Words weight[heads];
          for (std::size_t h = 0; h < heads; ++h)
            weight[h] = broadcast_pair(row + (v / kWeights * heads + h) * stride + p);
          for (std::size_t w = v; w < v + kWeights && w < Extent::vectors; ++w) {
            const Words value =
                load_values(values + p * sizes.head + 2 * w * kLanes<float>, extent);
            for (std::size_t h = 0; h < heads; ++h) total[h][w] += products(value, weight[h]);
          }
        }
      }
      if (d == 0) fetch_rest(next);
      row += kBlock;
    });
    for (std::size_t h = 0; h < heads; ++h) {
      Block<Floats, Extent::vectors> results;
      for (std::size_t v = 0; v < Extent::vectors; ++v)
        results.vector[v] = __builtin_convertvector(total[h][v], Floats) *
                            steps(stride)[(first_group + v / kWeights) * heads + h];
      store<Float32>(to.values + h * sizes.head + d, results, extent);
    }
  }

  template <std::size_t count>
  static TENSOR_OPS_INLINE Words load_values(const std::int8_t* from, Whole<count>) {
    return load_pairs(from);
  }
  static TENSOR_OPS_INLINE Words load_values(const std::int8_t* from, PartialVector extent) {
    std::int8_t pairs[2 * kLanes<float>] = {};
    __builtin_memcpy(pairs, from, 2 * extent.elements);
    return load_pairs(pairs);
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
