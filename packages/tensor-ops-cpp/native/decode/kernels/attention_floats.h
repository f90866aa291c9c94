// Attention to a range of positions whose keys and values are floats.
#pragma once

#include "decode/kernels/attention.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// scores[h * stride + p] = q_h . key_p times the scale, for a block. Inlined, it would find no
// registers for its addresses and sums.
template <class Element, std::size_t heads>
__attribute__((noinline)) void score_block(const float* q, const typename Element::Storage* keys,
                                           Ahead ahead, std::size_t size, float scale,
                                           float* scores, std::size_t stride) {
  using T = typename Element::Storage;
  using Sums = Floats[heads][kBlockVectors];
  Sums even, odd;
  TENSOR_OPS_UNROLLED_FOR (h, heads)
    TENSOR_OPS_UNROLLED_FOR (v, kBlockVectors) even[h][v] = odd[h][v] = Floats{};
  const auto add = [&](std::size_t d, Sums& sums) TENSOR_OPS_INLINE_LAMBDA {
    TENSOR_OPS_UNROLLED_FOR (v, kBlockVectors) {
      const Floats key = Element::widen(
          load_vector<typename Element::Packed>(keys + d * kBlock + v * kLanes<float>));
      TENSOR_OPS_UNROLLED_FOR (h, heads)
        sums[h][v] = fma(key, broadcast(q + h * size + d), sums[h][v]);
    }
  };
  std::size_t d = 0;
  for (; d + 2 <= size; d += 2) {
    ahead.fetch(d * kBlock * sizeof(T), 2 * kBlock * sizeof(T));
    add(d, even);
    add(d + 1, odd);
  }
  if (d < size) add(d, even);
  TENSOR_OPS_UNROLLED_FOR (h, heads)
    TENSOR_OPS_UNROLLED_FOR (v, kBlockVectors)
      store_vector(scores + h * stride + v * kLanes<float>, (even[h][v] + odd[h][v]) * scale);
}

template <class Element, std::size_t heads>
struct Query : RangeQuery<Element> {
  void run() const {
    const std::size_t stride = this->seen.count * kBlock;
    score(stride);
    for (std::size_t h = 0; h < heads; ++h) this->exponentials(h, scores() + h * stride, stride);
    const std::size_t size = this->sizes.head;
    std::size_t d = 0;
    for (; d + kValueVectors * kLanes<float> <= size; d += kValueVectors * kLanes<float>)
      weigh_values(d, stride, Whole<kValueVectors>{});
    for (; d + kLanes<float> <= size; d += kLanes<float>) weigh_values(d, stride, Whole<1>{});
    if (d < size) weigh_values(d, stride, PartialVector{size - d});
  }

 private:
  using T = typename Element::Storage;

  // A row of scores for each head.
  TENSOR_OPS_INLINE float* scores() const { return this->scratch; }

  void score(std::size_t stride) const {
    const std::size_t size = this->sizes.head;
    float* to = scores();
    this->for_blocks(false, [&](const CacheBlock<Element>& block, std::size_t from, std::size_t end,
                                Ahead next) TENSOR_OPS_INLINE_LAMBDA {
      score_block<Element, heads>(this->q, block.keys(), next, size, this->sizes.scale, to, stride);
      if (this->sizes.soft_cap > 0 || from > 0 || end < kBlock)
        for (std::size_t h = 0; h < heads; ++h) this->cap_scores(to + h * stride, from, end);
      to += kBlock;
    });
  }

  // Elements of the results from d on: the values of all positions in order, each times its weight.
  template <class Extent>
  TENSOR_OPS_INLINE void weigh_values(std::size_t d, std::size_t stride, Extent extent) const {
    const std::size_t size = this->sizes.head;
    const float* weights = scores();
    Block<Floats, Extent::vectors> total[heads] = {};
    this->for_blocks(true, [&](const CacheBlock<Element>& block, std::size_t from, std::size_t end,
                               Ahead next) TENSOR_OPS_INLINE_LAMBDA {
      const T* const values = block.values() + d;
      for (std::size_t p = from; p < end; ++p) {
        next.fetch((p * size + d) * sizeof(T), Extent::vectors * kLanes<float> * sizeof(T));
        const auto value = load<Element>(values + p * size, extent);
        for (std::size_t h = 0; h < heads; ++h) {
          const Floats weight = broadcast(weights + h * stride + p);
          for (std::size_t v = 0; v < Extent::vectors; ++v)
            total[h].vector[v] = fma(value.vector[v], weight, total[h].vector[v]);
        }
      }
      weights += kBlock;
    });
    for (std::size_t h = 0; h < heads; ++h)
      tensor_ops::TENSOR_OPS_LEVEL::store<Float32>(this->to.values + h * size + d, total[h],
                                                   extent);
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
