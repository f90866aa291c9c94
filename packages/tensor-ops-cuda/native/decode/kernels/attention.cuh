// Attention of a token to the positions so far, divided into spans of Attention::span positions.
// Each span is computed by one block, and the partial results are added in the order of the spans,
// so that the result does not depend on the number of blocks.
#pragma once

#include "decode/kernels/plan.h"
#include "decode/kernels/product.cuh"
#include "kernels/exp.cuh"

namespace tensor_ops::decode {

// The size of a partial result: the elements, the largest score, the sum of the exponentials.
DEVICE int part_size(int head_size) { return head_size + 2; }

// How many query heads of a group a block computes at once.
DEVICE int heads_at_once(int head_size) { return head_size > 128 ? 2 : 4; }
constexpr int kMostHeads = 4;
constexpr int kAttentionBytes =
    4 * (kMostHeads * kMostHeadSize / 2 * (kBlockWarps + 1) + kMostHeads * kBlockWarps * 2);

// exp(x) for x <= 0. Not inlined, to keep the kernel's code small.
static __device__ __noinline__ float exp_below(float x) { return scaled_exp(x, 0.0f).value(); }

constexpr std::int64_t kNowhere = -1;

struct Spans {
  int first, end;     // spans
  int begin, length;  // positions
};
DEVICE Spans spans_of(const Attention& attention, int position) {
  const int length = position + 1;
  const int begin =
      attention.window > 0 && length > attention.window ? length - attention.window : 0;
  return {begin / attention.span, (length + attention.span - 1) / attention.span, begin, length};
}

DEVICE float* part_of(const Attention& attention, int token, int head, int span) {
  const std::int64_t row = static_cast<std::int64_t>(token) * attention.heads + head;
  return attention.parts + (row * attention.most_spans + span) * part_size(attention.head_size);
}

// The first element of a position in the cache.
DEVICE std::int64_t cache_place(const Attention& attention, const std::int32_t* page_table,
                                int pages_per_request, int slot, int kv_head, int position) {
  const auto page_size = static_cast<unsigned>(attention.page_size);  // which is quicker to divide
  const auto page_of_slot = static_cast<int>(static_cast<unsigned>(position) / page_size);
  const int page = attention.is_paged ? page_table[slot * pages_per_request + page_of_slot] : slot;
  const std::int64_t row = static_cast<std::int64_t>(page) * attention.kv_heads + kv_head;
  return (row * attention.page_size + static_cast<unsigned>(position) % page_size) *
         attention.head_size;
}

// Eight elements of a key or value.
struct CacheVector {
  float element[8];

  // Loads zeros where !is_there. Elements of float16 stay packed in the first four words until
  // expand().
  DEVICE void load(const void* cache, std::int64_t at, bool is_half, bool is_there) {
    uint4 words[2] = {};
    const auto* const from = static_cast<const unsigned char*>(cache) + at * (is_half ? 2 : 4);
    if (is_there) words[0] = observe(reinterpret_cast<const uint4*>(from));
    if (is_there && !is_half) words[1] = observe(reinterpret_cast<const uint4*>(from + 16));
#pragma unroll
    for (int i = 0; i < 8; ++i) element[i] = __uint_as_float(word_of(words[i / 4], i % 4));
  }
  DEVICE void expand() {
#pragma unroll
    for (int i = 7; i >= 0; --i) {
      const unsigned two = __float_as_uint(element[i / 2]);
      element[i] = real(Float16{static_cast<unsigned short>(two >> (16 * (i % 2)))});
    }
  }
};
constexpr int kVectors = 2;  // of keys, and of values, that a lane loads at once

DEVICE void expand_all(CacheVector (&vectors)[kVectors], bool is_half) {
  if (!is_half) return;
#pragma unroll
  for (CacheVector& each : vectors) each.expand();
}

// A warp's running softmax over its positions of a span, for query heads that share their keys. A
// lane accumulates eight elements of the values, over some of the positions.
struct WarpAttention {
  float most[kMostHeads], sum[kMostHeads], value[kMostHeads][8];

  DEVICE WarpAttention() {
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h) {
      most[h] = -INFINITY;
      sum[h] = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) value[h][i] = 0;
    }
  }

  // Adds eight positions; `at` and `is_seen` are those of position lane / 4. Four lanes share a
  // key, and `lanes_of_row` lanes a value. Values are loaded before the scores are computed. What q
  // has of others than the first `heads` heads is not read.
  DEVICE void add(const Attention& attention, const float* q, int heads, std::int64_t at,
                  bool is_seen, int lanes_of_row) {
    const int size = attention.head_size, lane = lane_of_thread();
    const bool is_half = attention.is_half;
    const int positions_at_once = 32 / lanes_of_row, loads = 8 / positions_at_once;
    const int own = lane / lanes_of_row, element = lane % lanes_of_row * 8;
    CacheVector values[kVectors];
    const auto load_values = [&](int begin) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int p = (begin + i) * positions_at_once + own;
        const std::int64_t place = __shfl_sync(~0u, is_seen ? at : kNowhere, p % 8 * 4);
        const bool is_there = begin + i < loads && element < size && place != kNowhere;
        values[i].load(attention.values, place + element, is_half, is_there);
      }
    };
    load_values(0);

    float score[kMostHeads] = {};
#pragma unroll 1
    for (int d = lane % 4 * 8; d < size; d += kVectors * 32) {
      CacheVector keys[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        keys[i].load(attention.keys, at + d + i * 32, is_half, d + i * 32 < size);
      expand_all(keys, is_half);
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        if (d + i * 32 < size) add_products(score, keys[i], q + d + i * 32, size, heads);
    }
    weigh(score, attention.scale, is_seen);

#pragma unroll 1
    for (int begin = 0; begin < loads; begin += kVectors) {
      if (begin > 0) load_values(begin);
      expand_all(values, is_half);
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int p = (begin + i) * positions_at_once + own;  // without a value where there is none
#pragma unroll
        for (int h = 0; h < kMostHeads; ++h) {
          const float share = __shfl_sync(~0u, score[h], p % 8 * 4);
#pragma unroll
          for (int k = 0; k < 8; ++k) value[h][k] = fused(share, values[i].element[k], value[h][k]);
        }
      }
    }
  }

  // Sums the accumulators of the lanes that have the same elements.
  DEVICE void join_lanes(int lanes_of_row) {
#pragma unroll 1
    for (int mask = lanes_of_row; mask < 32; mask *= 2)
#pragma unroll
      for (int h = 0; h < kMostHeads; ++h)
#pragma unroll
        for (int k = 0; k < 8; ++k) value[h][k] += __shfl_xor_sync(~0u, value[h][k], mask);
  }

 private:
  // Absent heads are computed with the queries of the first, and their results are not used: behind
  // those of the present heads is what other warps write.
  DEVICE static void add_products(float (&score)[kMostHeads], const CacheVector& key,
                                  const float* q, int size, int heads) {
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h) {
      const float* const of_head = q + (h < heads ? h * size : 0);
#pragma unroll
      for (int k = 0; k < 8; ++k) score[h] = fused(key.element[k], of_head[k], score[h]);
    }
  }

  // Replaces scores by exp(score - largest), and rescales the accumulators to the new largest.
  DEVICE void weigh(float (&score)[kMostHeads], float scale, bool is_seen) {
    float largest[kMostHeads], added[kMostHeads];
#pragma unroll 1
    for (int mask = 1; mask < 4; mask *= 2)
#pragma unroll
      for (int h = 0; h < kMostHeads; ++h) score[h] += __shfl_xor_sync(~0u, score[h], mask);
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h) {
      score[h] = is_seen ? score[h] * scale : -INFINITY;
      largest[h] = score[h] > most[h] ? score[h] : most[h];
    }
#pragma unroll 1
    for (int mask = 4; mask < 32; mask *= 2)
#pragma unroll
      for (int h = 0; h < kMostHeads; ++h) {
        const float other = __shfl_xor_sync(~0u, largest[h], mask);
        largest[h] = other > largest[h] ? other : largest[h];
      }
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h) {
      // NaN, which is not among the largest, has a weight: NaN.
      const bool has_weight = score[h] != -INFINITY;
      added[h] = score[h] = has_weight ? exp_below(score[h] - largest[h]) : 0;
    }
#pragma unroll 1
    for (int mask = 4; mask < 32; mask *= 2)
#pragma unroll
      for (int h = 0; h < kMostHeads; ++h) added[h] += __shfl_xor_sync(~0u, added[h], mask);
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h) {
      const float factor = most[h] != -INFINITY ? exp_below(most[h] - largest[h]) : 0;
      most[h] = largest[h];
      sum[h] = fused(sum[h], factor, added[h]);
#pragma unroll
      for (int k = 0; k < 8; ++k) value[h][k] *= factor;
    }
  }
};

// Computes the partial results of one span, for query heads that share their keys.
DEVICE void attend_to_span(const Attention& attention, const Steps& steps, unsigned char* memory,
                           int token, int slot, int kv_head, int first_head, int heads, int span,
                           const Spans& spans) {
  const int size = attention.head_size, stride = part_size(size);
  const int warp = warp_of_thread(), lane = lane_of_thread();
  auto* const q = reinterpret_cast<float*>(memory);
  float* const parts = q + kMostHeads * kMostHeadSize / 2;  // [warp][head]
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < heads * size; i += kBlockThreads)
    q[i] = observe(attention.queries + (token * attention.heads + first_head) * size + i);
  block_sync(kQueries);

  int lanes_of_row = 4;
  while (lanes_of_row * 8 < size) lanes_of_row *= 2;
  const int begin = span * attention.span, end = begin + attention.span;
  WarpAttention own;
  for (int round = begin; round < end && round < spans.length; round += kRound) {
    if (round + kRound <= spans.begin) continue;
    const int position = round + warp * 8 + lane / 4;
    const bool is_seen = position >= spans.begin && position < spans.length;
    const std::int64_t at = cache_place(attention, steps.page_table, steps.pages_per_request, slot,
                                        kv_head, is_seen ? position : spans.length - 1);
    own.add(attention, q, heads, at, is_seen, lanes_of_row);
  }
  own.join_lanes(lanes_of_row);
#pragma unroll
  for (int h = 0; h < kMostHeads; ++h) {
    float* const part = parts + (warp * heads + h) * stride;
    if (h >= heads) break;
    if (lane * 8 < size && lane < lanes_of_row)
#pragma unroll
      for (int k = 0; k < 8; ++k) part[lane * 8 + k] = own.value[h][k];
    if (lane == 0) {
      part[size] = own.most[h];
      part[size + 1] = own.sum[h];
    }
  }
  block_sync(kSpanWritten);
#pragma unroll 1
  for (int h = 0; h < heads; ++h) {
    const auto part = [&](int w) { return parts + (w * heads + h) * stride; };
    float most = -INFINITY;
#pragma unroll 1
    for (int w = 0; w < kBlockWarps; ++w) most = part(w)[size] > most ? part(w)[size] : most;
#pragma unroll 1
    for (int d = static_cast<int>(threadIdx.x); d < stride; d += kBlockThreads) {
      float total = 0;
#pragma unroll 1
      for (int w = 0; w < kBlockWarps; ++w)
        if (part(w)[size + 1] != 0)
          total = fused(exp_below(part(w)[size] - most), part(w)[d], total);
      publish(part_of(attention, token, first_head + h, span) + d, d == size ? most : total);
    }
  }
}

// Computes the block's share of all pairs of a token and a span.
DEVICE void attend(const Attention& attention, const Steps& steps, unsigned char* memory,
                   const int* positions) {
  const int at_once = heads_at_once(attention.head_size);
  const int group = attention.heads / attention.kv_heads, turns = (group + at_once - 1) / at_once;
  // Unsigned, which is quicker to divide.
  const auto heads_of_span = static_cast<unsigned>(attention.kv_heads * turns);
  unsigned item = blockIdx.x;
  for (int token = 0; token < steps.num_tokens; ++token) {
    const Spans spans = spans_of(attention, positions[token]);
    const unsigned items = static_cast<unsigned>(spans.end - spans.first) * heads_of_span;
    for (; item < items; item += gridDim.x) {
      const auto span = static_cast<int>(item / heads_of_span);
      const unsigned in_span = item % heads_of_span;
      const auto kv_head = static_cast<int>(in_span / static_cast<unsigned>(turns));
      const int first = (static_cast<int>(in_span) - kv_head * turns) * at_once;
      const int heads = group - first < at_once ? group - first : at_once;
      attend_to_span(attention, steps, memory, token, steps.slots[token], kv_head,
                     kv_head * group + first, heads, spans.first + span, spans);
    }
    item -= items;
  }
}

// Elements `column` to `column` + 3 of the output of attention: the sum over the spans.
DEVICE float4 attended(const Attention& attention, int token, int column, const Spans& spans) {
  const int size = attention.head_size, head = column / size, d = column % size;
  float most = -INFINITY, sum = 0, value[4] = {};
#pragma unroll 2
  for (int s = spans.first; s < spans.end; ++s) {
    const float its = observe(part_of(attention, token, head, s) + size);
    most = its > most ? its : most;
  }
#pragma unroll 2
  for (int s = spans.first; s < spans.end; ++s) {
    const float* const part = part_of(attention, token, head, s);
    const float share = exp_below(observe(part + size) - most);
    sum = fused(share, observe(part + size + 1), sum);
#pragma unroll
    for (int i = 0; i < 4; ++i) value[i] = fused(share, observe(part + d + i), value[i]);
  }
  return {value[0] / sum, value[1] / sum, value[2] / sum, value[3] / sum};
}

}  // namespace tensor_ops::decode
