// Attention of a token to the positions so far, in spans that begin at multiples of kSpan. Who
// computes a span does not change its bits, and spans are added up in their order.
#pragma once

#include "decode/kernels/plan.h"
#include "decode/kernels/ring.cuh"
#include "kernels/exp.cuh"

namespace tensor_ops::decode {

// Of a head in a span: its elements, the largest score, the sum of the exponentials.
DEVICE int part_size(int head_size) { return head_size + 2; }

// The heads of a group that attend at once.
DEVICE int heads_at_once(int head_size) { return head_size > 128 ? 2 : 4; }
constexpr int kMostHeads = 4;
constexpr int kAttentionBytes =
    4 * (kMostHeads * kMostHeadSize / 2 * (kBlockWarps + 1) + kMostHeads * kBlockWarps * 2);

// exp(x) of x <= 0.
DEVICE float exp_below(float x) { return scaled_exp(x, 0.0f).value(); }

struct Spans {
  int first, end;     // spans
  int begin, length;  // positions
};
DEVICE Spans spans_of(const Attention& attention, int position) {
  const int length = position + 1;
  const int begin =
      attention.window > 0 && length > attention.window ? length - attention.window : 0;
  return {begin / kSpan, (length + kSpan - 1) / kSpan, begin, length};
}

DEVICE float* part_of(const Attention& attention, int token, int head, int span) {
  const std::int64_t row = static_cast<std::int64_t>(token) * attention.heads + head;
  return attention.parts + (row * attention.most_spans + span) * part_size(attention.head_size);
}

// The first element of a position in the cache.
DEVICE std::int64_t cache_place(const Attention& attention, const std::int32_t* page_table,
                                int pages_per_request, int slot, int kv_head, int position) {
  const int size = attention.page_size, page_of_slot = position / size;
  const int page = attention.is_paged ? page_table[slot * pages_per_request + page_of_slot] : slot;
  const std::int64_t row = static_cast<std::int64_t>(page) * attention.kv_heads + kv_head;
  return (row * size + position % size) * attention.head_size;
}

// Elements of keys or values, from `at` on.
template <int kCount>
DEVICE void load_elements(float (&elements)[kCount], const void* cache, std::int64_t at,
                          bool is_half) {
  if (is_half) {
    const auto* const from = static_cast<const Float16*>(cache) + at;
    const auto halves = observe(reinterpret_cast<const Packed<Float16, kCount>*>(from));
#pragma unroll
    for (int i = 0; i < kCount; ++i) elements[i] = real(halves.element[i]);
  } else {
    constexpr int kVector = kCount < 4 ? kCount : 4;
    const auto* const from = static_cast<const float*>(cache) + at;
#pragma unroll
    for (int i = 0; i < kCount; i += kVector) {
      const auto floats = observe(reinterpret_cast<const Packed<float, kVector>*>(from + i));
#pragma unroll
      for (int k = 0; k < kVector; ++k) elements[i + k] = floats.element[k];
    }
  }
}

// What one block has of a span, for heads that share their keys. Each warp has 32 positions: a lane
// computes the scores of one, and then all lanes its part of the elements.
DEVICE void attend_to_span(const Attention& attention, const Steps& steps, unsigned char* memory,
                           int token, int slot, int kv_head, int first_head, int heads, int span,
                           const Spans& spans) {
  constexpr int kCount = 8;
  const int size = attention.head_size, stride = part_size(size);
  const int warp = warp_of_thread(), lane = lane_of_thread();
  auto* const q = reinterpret_cast<float*>(memory);
  float* const parts = q + kMostHeads * kMostHeadSize / 2;  // [warp][head]
  for (int i = static_cast<int>(threadIdx.x); i < heads * size; i += kBlockThreads)
    q[i] = observe(attention.queries + (token * attention.heads + first_head) * size + i);
  block_sync(kQueries);

  const int position = span * kSpan + warp * 32 + lane;
  const bool is_seen = position >= spans.begin && position < spans.length;
  const std::int64_t at = cache_place(attention, steps.page_table, steps.pages_per_request, slot,
                                      kv_head, is_seen ? position : spans.length - 1);
  float score[kMostHeads] = {};
  for (int d = 0; d < size; d += kCount) {
    float key[kCount];
    load_elements(key, attention.keys, at + d, attention.is_half);
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h)
      if (h < heads)
#pragma unroll
        for (int i = 0; i < kCount; ++i) score[h] = fused(key[i], q[h * size + d + i], score[h]);
  }
#pragma unroll
  for (int h = 0; h < kMostHeads; ++h) {
    float most = is_seen ? score[h] * attention.scale : -INFINITY;
    score[h] = most;
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = __shfl_xor_sync(~0u, most, mask);
      most = other > most ? other : most;
    }
    score[h] = is_seen && most != -INFINITY ? exp_below(score[h] - most) : 0;
    float sum = score[h];
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    if (h < heads && lane == 0) {
      parts[(warp * heads + h) * stride + size] = most;
      parts[(warp * heads + h) * stride + size + 1] = sum;
    }
  }
  for (int first = 0; first < size; first += 64) {
    const int d = first + lane * 2;
    float value[kMostHeads][2] = {};
    for (int p = 0; p < 32; ++p) {
      const std::int64_t place = __shfl_sync(~0u, at, p);
      float two[2] = {};
      if (d < size) load_elements(two, attention.values, place + d, attention.is_half);
#pragma unroll
      for (int h = 0; h < kMostHeads; ++h) {
        const float share = __shfl_sync(~0u, score[h], p);
        // What is not seen has a share of 0, and may be anything.
        if (share != 0)
          for (int i = 0; i < 2; ++i) value[h][i] = fused(share, two[i], value[h][i]);
      }
    }
#pragma unroll
    for (int h = 0; h < kMostHeads; ++h)
      if (h < heads && d < size)
        for (int i = 0; i < 2; ++i) parts[(warp * heads + h) * stride + d + i] = value[h][i];
  }
  block_sync(kSpanWritten);
  for (int i = static_cast<int>(threadIdx.x); i < heads * stride; i += kBlockThreads) {
    const int h = i / stride, d = i % stride;
    const auto part = [&](int w) { return parts + (w * heads + h) * stride; };
    float most = -INFINITY, total = 0;
#pragma unroll 1
    for (int w = 0; w < kBlockWarps; ++w) most = part(w)[size] > most ? part(w)[size] : most;
#pragma unroll 1
    for (int w = 0; w < kBlockWarps; ++w)
      if (part(w)[size + 1] != 0) total = fused(exp_below(part(w)[size] - most), part(w)[d], total);
    publish(part_of(attention, token, first_head + h, span) + d, d == size ? most : total);
  }
}

// The block's share of all tokens, spans and heads.
DEVICE void attend(const Attention& attention, const Steps& steps, unsigned char* memory,
                   const int* positions) {
  const int at_once = heads_at_once(attention.head_size);
  const int group = attention.heads / attention.kv_heads, turns = (group + at_once - 1) / at_once;
  int item = static_cast<int>(blockIdx.x);
  for (int token = 0; token < steps.num_tokens; ++token) {
    const Spans spans = spans_of(attention, positions[token]);
    const int items = (spans.end - spans.first) * attention.kv_heads * turns;
    for (; item < items; item += static_cast<int>(gridDim.x)) {
      const int turn = item % turns, kv_head = item / turns % attention.kv_heads;
      const int first = turn * at_once, heads = group - first < at_once ? group - first : at_once;
      attend_to_span(attention, steps, memory, token, steps.slots[token], kv_head,
                     kv_head * group + first, heads,
                     spans.first + item / turns / attention.kv_heads, spans);
    }
    item -= items;
  }
}

// Four elements of all heads of a token, from `column` on: the spans added up in their order.
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
