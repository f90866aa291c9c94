// Attention of one query to the positions of its request, for heads that share keys and values.
#pragma once

#include "decode/kernels/tanh.h"
#include "decode/share.h"
#include "kernels/exp2.h"
#include "kernels/memory.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Positions are taken in blocks of so many, at every level and from the same places on: the sums
// of a query do not depend on what else is computed.
constexpr std::size_t kBlock = 16;
constexpr std::size_t kBlockVectors = kBlock / kLanes<float>;
// Heads that share a pass over keys and values; sums for them fit the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr std::size_t kMostHeads = 4;
#elif defined(__AVX2__)
constexpr std::size_t kMostHeads = 2;
#else
constexpr std::size_t kMostHeads = 1;
#endif
constexpr std::size_t kValueVectors = 4;

struct Sizes {
  std::size_t heads, kv_heads, head;
  float scale, soft_cap;
  std::size_t window;  // 0: none
  bool is_interleaved;
  double eps;

  explicit TENSOR_OPS_INLINE Sizes(const double* attributes)
      : heads(static_cast<std::size_t>(attributes[0])),
        kv_heads(static_cast<std::size_t>(attributes[1])),
        head(static_cast<std::size_t>(attributes[2])),
        scale(static_cast<float>(attributes[3])),
        soft_cap(static_cast<float>(attributes[5])),
        window(static_cast<std::size_t>(attributes[4])),
        is_interleaved(attributes[6] != 0),
        eps(attributes[7]) {}
};

// What is kept of a slot's positions for one head.
template <class Element>
struct HeadCache {
  using T = typename Element::Storage;
  const decode::CacheMemory& cache;
  const std::int32_t* pages;
  std::size_t slot, head;

  TENSOR_OPS_INLINE T* keys(std::size_t page) const {
    const std::size_t number = cache.is_paged ? static_cast<std::size_t>(pages[page]) : slot;
    return reinterpret_cast<T*>(cache.data) +
           (number * cache.num_kv_heads + head) * 2 * cache.page_size * cache.head_size;
  }
  TENSOR_OPS_INLINE T* values(std::size_t page) const {
    return keys(page) + cache.page_size * cache.head_size;
  }
  // Positions of a block of a page.
  TENSOR_OPS_INLINE std::size_t width(std::size_t first) const {
    return cache.page_size - first < kBlock ? cache.page_size - first : kBlock;
  }
};

// A block of keys, or of those that a page has less than a block of, in float32.
template <class Element>
TENSOR_OPS_INLINE void widen_block(const typename Element::Storage* keys, std::size_t width,
                                   std::size_t size, float* to) {
  for (std::size_t d = 0; d < size; ++d)
    for (std::size_t p = 0; p < kBlock; ++p)
      to[d * kBlock + p] = p < width ? Element::load(keys[d * width + p]) : 0.0f;
}

// Unlike splat(), whose sum turns -0 into 0, no arithmetic: it can be part of another instruction.
TENSOR_OPS_INLINE Floats broadcast(const float* from) {
  return bit_cast<Floats>(BitsOf<Floats>{} + bit_cast<std::uint32_t>(*from));
}

// scores[h * stride + p] = q_h . key_p for a whole block.
template <class Element, std::size_t heads>
TENSOR_OPS_INLINE void score_block(const float* q, const typename Element::Storage* keys,
                                   std::size_t size, float* scores, std::size_t stride) {
  Floats even[heads][kBlockVectors] = {}, odd[heads][kBlockVectors] = {};
  const auto add = [&](std::size_t d,
                       Floats(&sums)[heads][kBlockVectors]) TENSOR_OPS_INLINE_LAMBDA {
    for (std::size_t v = 0; v < kBlockVectors; ++v) {
      const Floats key = Element::widen(
          load_vector<typename Element::Packed>(keys + d * kBlock + v * kLanes<float>));
      for (std::size_t h = 0; h < heads; ++h)
        sums[h][v] = fma(key, broadcast(q + h * size + d), sums[h][v]);
    }
  };
  std::size_t d = 0;
  for (; d + 2 <= size; d += 2) {
    add(d, even);
    add(d + 1, odd);
  }
  if (d < size) add(d, even);
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t v = 0; v < kBlockVectors; ++v)
      store_vector(scores + h * stride + v * kLanes<float>, even[h][v] + odd[h][v]);
}

// One query of some heads that share keys and values.
template <class Element, std::size_t heads>
struct Query {
  const HeadCache<Element> cache;
  const Sizes& sizes;
  const float* q;  // heads * sizes.head
  std::size_t position;
  float *block, *scores;  // scratch: a block of keys, and a row of scores for each head
  float* out;             // heads * sizes.head

  // visit(page, first position in the page, width, first lane, end lane) of each block with
  // positions that the query sees, in order.
  template <class Visit>
  TENSOR_OPS_INLINE void for_blocks(Visit visit) const {
    const std::size_t page_size = cache.cache.page_size, end = position + 1;
    const std::size_t begin = sizes.window && end > sizes.window ? end - sizes.window : 0;
    for (std::size_t page = begin / page_size; page * page_size < end; ++page) {
      const std::size_t base = page * page_size;
      const std::size_t from = begin > base ? begin - base : 0;
      const std::size_t to = end - base < page_size ? end - base : page_size;
      for (std::size_t first = from / kBlock * kBlock; first < to; first += kBlock)
        visit(page, first, cache.width(first), from > first ? from - first : 0,
              to - first < kBlock ? to - first : kBlock);
    }
  }

  void run() const {
    std::size_t blocks = 0;
    for_blocks([&](auto...) TENSOR_OPS_INLINE_LAMBDA { ++blocks; });
    const std::size_t stride = blocks * kBlock;
    score(stride);
    float sums[heads];
    for (std::size_t h = 0; h < heads; ++h) sums[h] = exponentials(scores + h * stride, stride);
    std::size_t d = 0;
    for (; d + kValueVectors * kLanes<float> <= sizes.head; d += kValueVectors * kLanes<float>)
      weigh_values(d, stride, sums, Whole<kValueVectors>{});
    for (; d + kLanes<float> <= sizes.head; d += kLanes<float>)
      weigh_values(d, stride, sums, Whole<1>{});
    if (d < sizes.head) weigh_values(d, stride, sums, Part{sizes.head - d});
  }

 private:
  // The keys of the next block, and the values of this one, which are wanted after all keys.
  TENSOR_OPS_INLINE void prefetch_for(std::size_t page, std::size_t first, std::size_t end) const {
    const std::size_t bytes = kBlock * sizes.head * sizeof(typename Element::Storage);
    const std::size_t page_size = cache.cache.page_size;
    prefetch(cache.values(page) + first * sizes.head, bytes);
    if (first + kBlock < page_size)
      prefetch(cache.keys(page) + (first + kBlock) * sizes.head, bytes);
    else if ((page + 1) * page_size < end)
      prefetch(cache.keys(page + 1), bytes);
  }

  // Lanes without a position that is seen become -infinity.
  void score(std::size_t stride) const {
    float* to = scores;
    for_blocks([&](std::size_t page, std::size_t first, std::size_t width, std::size_t from,
                   std::size_t end) TENSOR_OPS_INLINE_LAMBDA {
      const auto* const keys = cache.keys(page) + first * sizes.head;
      prefetch_for(page, first, position + 1);
      if (width == kBlock) {
        score_block<Element, heads>(q, keys, sizes.head, to, stride);
      } else {
        widen_block<Element>(keys, width, sizes.head, block);
        score_block<Float32, heads>(q, block, sizes.head, to, stride);
      }
      for (std::size_t h = 0; h < heads; ++h) {
        float* const row = to + h * stride;
#pragma omp simd
        for (std::size_t p = 0; p < kBlock; ++p) row[p] *= sizes.scale;
        if (sizes.soft_cap > 0) {
#pragma omp simd
          for (std::size_t p = 0; p < kBlock; ++p) row[p] = soft_capped(row[p], sizes.soft_cap);
        }
        if (from == 0 && end == kBlock) continue;
        for (std::size_t p = 0; p < kBlock; ++p)
          if (p < from || p >= end) row[p] = -__builtin_inff();
      }
      to += kBlock;
    });
  }

  // exp(score - largest) in place, and their sum: one in each lane, over all blocks in order.
  static float exponentials(float* row, std::size_t count) {
    Floats most[kBlockVectors], sums[kBlockVectors] = {};
    for (std::size_t v = 0; v < kBlockVectors; ++v) most[v] = splat<Floats>(-__builtin_inff());
    for_vectors(count, [&](std::size_t i, std::size_t v) TENSOR_OPS_INLINE_LAMBDA {
      most[v] = larger(load_vector<Floats>(row + i), most[v]);
    });
    float lanes[kBlock], largest = -__builtin_inff();
    __builtin_memcpy(lanes, most, sizeof lanes);
    for (float lane : lanes) largest = lane > largest ? lane : largest;
    const Floats top = splat<Floats>(largest), zero{};
    for_vectors(count, [&](std::size_t i, std::size_t v) TENSOR_OPS_INLINE_LAMBDA {
      const Floats below = top - load_vector<Floats>(row + i);
      const Floats e = exp_of_negative<Digits::kAll>(below);
      // Beyond that the share of a position would be less than 2^-115.
      const Floats share = below > ExpConstants<float>::ordinary ? zero : e;
      store_vector(row + i, share);
      sums[v] += share;
    });
    __builtin_memcpy(lanes, sums, sizeof lanes);
    float sum = 0;
    for (float lane : lanes) sum += lane;
    return sum;
  }

  template <class Body>
  static TENSOR_OPS_INLINE void for_vectors(std::size_t count, Body body) {
    for (std::size_t i = 0; i < count; i += kBlock)
      for (std::size_t v = 0; v < kBlockVectors; ++v) body(i + v * kLanes<float>, v);
  }

  // Elements of the results from d on: the values of all positions in order, each times its weight.
  template <class Extent>
  TENSOR_OPS_INLINE void weigh_values(std::size_t d, std::size_t stride, const float* sums,
                                      Extent extent) const {
    Block<Floats, Extent::vectors> total[heads] = {};
    const float* weights = scores;
    for_blocks([&](std::size_t page, std::size_t first, std::size_t, std::size_t from,
                   std::size_t end) TENSOR_OPS_INLINE_LAMBDA {
      const auto* const values = cache.values(page) + first * sizes.head + d;
      for (std::size_t p = from; p < end; ++p) {
        const auto value = load<Element>(values + p * sizes.head, extent);
        for (std::size_t h = 0; h < heads; ++h) {
          const Floats weight = broadcast(weights + h * stride + p);
          for (std::size_t v = 0; v < Extent::vectors; ++v)
            total[h].vector[v] = fma(value.vector[v], weight, total[h].vector[v]);
        }
      }
      weights += kBlock;
    });
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t v = 0; v < Extent::vectors; ++v) total[h].vector[v] /= sums[h];
      tensor_ops::TENSOR_OPS_LEVEL::store<Float32>(out + h * sizes.head + d, total[h], extent);
    }
  }
};

template <class Element, std::size_t heads>
void attend(const HeadCache<Element>& cache, const Sizes& sizes, const float* q, std::size_t count,
            std::size_t position, float* scratch, float* out) {
  if constexpr (heads > 1)
    if (count < heads)
      return attend<Element, heads - 1>(cache, sizes, q, count, position, scratch, out);
  Query<Element, heads>{cache, sizes, q, position, scratch, scratch + kBlock * sizes.head, out}
      .run();
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
