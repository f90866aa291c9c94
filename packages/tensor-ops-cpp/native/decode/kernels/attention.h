// Attention of one query to the positions of its request, for heads that share keys and values.
#pragma once

#include "decode/kernels/attention_scratch.h"
#include "decode/kernels/cache_block.h"
#include "decode/kernels/tanh.h"
#include "kernels/exp2.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Heads that share a pass over keys and values; sums for them fit the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr std::size_t kMostHeads = 4;
#elif defined(__AVX2__)
constexpr std::size_t kMostHeads = 2;
#else
constexpr std::size_t kMostHeads = 1;
#endif
static_assert(kMostHeads <= decode::kMostQueryHeads);
constexpr std::size_t kValueVectors = 4;

struct Sizes {
  std::size_t heads, kv_heads, head;
  float scale, soft_cap;
  std::size_t window;  // 0: none
  bool is_interleaved;
  double eps;

  explicit TENSOR_OPS_INLINE Sizes(const decode::AttentionNode::Attributes& of)
      : heads(static_cast<std::size_t>(of.num_heads)),
        kv_heads(static_cast<std::size_t>(of.num_kv_heads)),
        head(static_cast<std::size_t>(of.head_size)),
        scale(static_cast<float>(of.scale)),
        soft_cap(static_cast<float>(of.soft_cap)),
        window(static_cast<std::size_t>(of.window)),
        is_interleaved(of.rotation == decode::AttentionNode::Rotation::kInterleaved),
        eps(of.eps) {}

  TENSOR_OPS_INLINE std::size_t group() const { return heads / kv_heads; }
  // The first position that a query at this one sees.
  TENSOR_OPS_INLINE std::size_t first_seen(std::size_t position) const {
    return window && position >= window ? position + 1 - window : 0;
  }
};

// The result of a group of heads for some positions. For each head: the sum of the values, each
// times exp(score - largest score); the largest score; and the sum of the exponentials.
struct Partial {
  float *values, *largest, *sums;

  TENSOR_OPS_INLINE Partial(float* to_values, float* to_largest, float* to_sums)
      : values(to_values), largest(to_largest), sums(to_sums) {}
  TENSOR_OPS_INLINE Partial(float* memory, const decode::PartialLayout& layout)
      : Partial(memory, memory + layout.largest, memory + layout.sums) {}
  // The part of the heads from `head` on.
  TENSOR_OPS_INLINE Partial from(std::size_t head, const Sizes& sizes) const {
    return {values + head * sizes.head, largest + head, sums + head};
  }
};

// exp(-below), or 0 beyond `ordinary`, where the share of a position would be less than 2^-115.
TENSOR_OPS_INLINE Floats exp_below(Floats below) {
  const Floats e = exp_of_negative<Digits::kAll>(below), zero{};
  return below > ExpConstants<float>::ordinary ? zero : e;
}

// Memory that is read later. It is prefetched a line at a time between arithmetic, since the loads
// would wait for many lines at once.
struct Ahead {
  const unsigned char* from;

  TENSOR_OPS_INLINE void fetch(std::size_t begin, std::size_t bytes) const {
    for (std::size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + begin + i, 0, 3);
  }
};

// As splat(), without its addition. That turns -0 into 0, and so is an instruction of its own,
// while a load into all lanes can be part of the instruction that uses them.
TENSOR_OPS_INLINE Floats broadcast(const float* from) {
  return bit_cast<Floats>(BitsOf<Floats>{} + bit_cast<std::uint32_t>(*from));
}

// One number of a vector's lanes: both halves are combined until one lane is left.
template <class V, class Combine>
TENSOR_OPS_INLINE float halved_lanes(V lanes, Combine combine) {
  if constexpr (sizeof(V) == 2 * sizeof(float)) {
    return combine(lanes[0], lanes[1]);
  } else {
    struct Halves {
      typename VectorOf<float, sizeof(V) / 2>::Type low, high;
    };
    const auto halves = bit_cast<Halves>(lanes);
    return halved_lanes(combine(halves.low, halves.high), combine);
  }
}
// The same of the lanes of a block, in an order that is the same for every length of a vector.
template <class Combine>
TENSOR_OPS_INLINE float halved(Floats (&lanes)[kBlockVectors], Combine combine) {
  for (std::size_t width = kBlockVectors / 2; width > 0; width /= 2)
    for (std::size_t v = 0; v < width; ++v) lanes[v] = combine(lanes[v], lanes[v + width]);
  return halved_lanes(lanes[0], combine);
}

// The end of the scores of a range: `to` gets the largest one and the sum of each head.
struct RangeScores {
  const Sizes& sizes;
  Partial to;

  TENSOR_OPS_INLINE void finish_scores(float* row, std::size_t from, std::size_t end) const {
#pragma omp simd
    for (std::size_t p = 0; p < kBlock; ++p) row[p] *= sizes.scale;
    cap_scores(row, from, end);
  }
  // The same of scores that are multiplied by the scale. Lanes without a position that is seen
  // become -infinity.
  TENSOR_OPS_INLINE void cap_scores(float* row, std::size_t from, std::size_t end) const {
    if (sizes.soft_cap > 0) {
#pragma omp simd
      for (std::size_t p = 0; p < kBlock; ++p) row[p] = soft_capped(row[p], sizes.soft_cap);
    }
    if (from == 0 && end == kBlock) return;
    for (std::size_t p = 0; p < kBlock; ++p)
      if (p < from || p >= end) row[p] = -__builtin_inff();
  }

  // Replaces scores by exp(score - largest).
  void exponentials(std::size_t h, float* row, std::size_t count) const {
    find_largest(h, row, count);
    replace(h, row, count);
  }
  TENSOR_OPS_INLINE void find_largest(std::size_t h, const float* row, std::size_t count) const {
    Floats most[kBlockVectors];
    for (std::size_t v = 0; v < kBlockVectors; ++v) most[v] = splat<Floats>(-__builtin_inff());
    for_vectors(count, [&](std::size_t i, std::size_t v) TENSOR_OPS_INLINE_LAMBDA {
      most[v] = larger(load_vector<Floats>(row + i), most[v]);
    });
    to.largest[h] = halved(
        most, [](auto low, auto high) TENSOR_OPS_INLINE_LAMBDA { return high > low ? high : low; });
  }
  // Each lane sums its exponentials over all blocks, in order.
  TENSOR_OPS_INLINE void replace(std::size_t h, float* row, std::size_t count) const {
    const float largest = to.largest[h];
    Floats sums[kBlockVectors] = {};
    for_vectors(count, [&](std::size_t i, std::size_t v) TENSOR_OPS_INLINE_LAMBDA {
      const Floats share = exp_below(splat<Floats>(largest) - load_vector<Floats>(row + i));
      store_vector(row + i, share);
      sums[v] += share;
    });
    to.sums[h] =
        halved(sums, [](auto low, auto high) TENSOR_OPS_INLINE_LAMBDA { return low + high; });
  }

  template <class Body>
  static TENSOR_OPS_INLINE void for_vectors(std::size_t count, Body body) {
    for (std::size_t i = 0; i < count; i += kBlock)
      for (std::size_t v = 0; v < kBlockVectors; ++v) body(i + v * kLanes<float>, v);
  }
};

// One query of some heads that share keys and values, and a range of positions.
template <class Element>
struct RangeQuery : RangeScores {
  const RangeBlocks &seen, &next;  // the blocks of the range, and blocks to be prefetched
  const float* q;                  // the heads, one behind the other
  float* scratch;

  // Calls visit(block, first lane, end lane, memory to be prefetched meanwhile). The next blocks
  // are prefetched in the order of memory: of floats the keys while keys are read, and the values
  // while values are; in int8 the first half of the blocks, then the second. The last range of
  // floats has none behind it, and prefetches its own values while its keys are read.
  template <class Visit>
  TENSOR_OPS_INLINE void for_blocks(bool of_values, Visit visit) const {
    const bool is_last = next.pair == seen.pair && next.range == seen.range;
    for (std::size_t i = 0; i < seen.count; ++i) {
      const RangeBlocks::Seen& each = seen.block[i];
      visit(CacheBlock<Element>{each.at, kBlock, sizes.head}, std::size_t{each.from},
            std::size_t{each.end}, ahead(of_values, is_last, i));
    }
  }
  TENSOR_OPS_INLINE Ahead ahead(bool of_values, bool is_last, std::size_t i) const {
    if constexpr (std::is_same_v<Element, Int8>) {
      const std::size_t half = of_values ? seen.count + i : i;
      return {next_block(half / 2).keys + half % 2 * half_bytes()};
    } else {
      return {of_values || is_last ? next_block(i).values : next_block(i).keys};
    }
  }
  TENSOR_OPS_INLINE decode::CacheMemory::Block next_block(std::size_t i) const {
    return next.block[i < next.count ? i : next.count - 1].at;
  }
  TENSOR_OPS_INLINE std::size_t half_bytes() const {
    return kBlock / 2 * decode::position_bytes(kCacheType<Element>, sizes.head, sizes.head);
  }
};

// The result of a head for all ranges so far: its values, each the sum times exp(score - largest),
// its largest score and its sum.
struct AttendedHead {
  float *values, *largest, *sum;

  // Adds the result of a range, in the order of ranges; the first one is copied.
  TENSOR_OPS_INLINE void add(bool is_first, const float* more, float more_largest, float more_sum,
                             std::size_t size) const {
    if (is_first) {
      *largest = more_largest;
      *sum = more_sum;
      __builtin_memcpy(values, more, size * sizeof(float));
      return;
    }
    const float top = more_largest > *largest ? more_largest : *largest;
    const float share = exp_below(splat<Floats>(top - *largest))[0];
    const float other = exp_below(splat<Floats>(top - more_largest))[0];
    *sum = *sum * share + more_sum * other;
    *largest = top;
#pragma omp simd
    for (std::size_t d = 0; d < size; ++d) values[d] = values[d] * share + more[d] * other;
  }

  // Adds the results of ranges as add() does one after another; part_of(range) is one of them. The
  // factors come first, so that no exponential waits for another, nor values for their own sum.
  template <class PartOf>
  void add_all(std::size_t count, PartOf part_of, std::size_t size) const {
    constexpr std::size_t kMost = 4 * kBlock;
    float shares[kMost], others[kMost];
    add(true, part_of(0).values, *part_of(0).largest, *part_of(0).sums, size);
    for (std::size_t begin = 1; begin < count; begin += kMost) {
      const std::size_t ranges = count - begin < kMost ? count - begin : kMost;
      for (std::size_t r = 0; r < ranges; ++r) {
        const float more = *part_of(begin + r).largest;
        const float top = more > *largest ? more : *largest;
        shares[r] = top - *largest;
        others[r] = top - more;
        *largest = top;
      }
      for (std::size_t r = ranges; r % kLanes<float> > 0; ++r) shares[r] = others[r] = 0;
      for (std::size_t r = 0; r < ranges; r += kLanes<float>) {
        store_vector(shares + r, exp_below(load_vector<Floats>(shares + r)));
        store_vector(others + r, exp_below(load_vector<Floats>(others + r)));
      }
      for (std::size_t r = 0; r < ranges; ++r)
        *sum = *sum * shares[r] + *part_of(begin + r).sums * others[r];
      const auto add_values = [&](std::size_t d, auto extent) TENSOR_OPS_INLINE_LAMBDA {
        auto all = load<Float32>(values + d, extent);
        for (std::size_t r = 0; r < ranges; ++r) {
          const auto more = load<Float32>(part_of(begin + r).values + d, extent);
          for (std::size_t v = 0; v < extent.vectors; ++v)
            all.vector[v] = all.vector[v] * shares[r] + more.vector[v] * others[r];
        }
        store<Float32>(values + d, all, extent);
      };
      std::size_t d = 0;
      for (; d + kValueVectors * kLanes<float> <= size; d += kValueVectors * kLanes<float>)
        add_values(d, Whole<kValueVectors>{});
      for (; d + kLanes<float> <= size; d += kLanes<float>) add_values(d, Whole<1>{});
      if (d < size) add_values(d, PartialVector{size - d});
    }
  }

  // The sink is a score without a value; null for none.
  TENSOR_OPS_INLINE void finish(std::size_t size, const float* sink) const {
    if (!sink) {
#pragma omp simd
      for (std::size_t d = 0; d < size; ++d) values[d] /= *sum;
      return;
    }
    const float top = *sink > *largest ? *sink : *largest;
    const float share = exp_below(splat<Floats>(top - *largest))[0];
    const float divisor = *sum * share + exp_below(splat<Floats>(top - *sink))[0];
#pragma omp simd
    for (std::size_t d = 0; d < size; ++d) values[d] = values[d] * share / divisor;
  }
};

// The same of a group of heads.
class Attended {
 public:
  // sinks: of each head, or null.
  TENSOR_OPS_INLINE Attended(const Sizes& sizes, const Partial& to, const float* sinks)
      : sizes_(sizes), to_(to), sinks_(sinks) {}

  void add(const Partial& part) {
    for (std::size_t h = 0; h < sizes_.group(); ++h)
      head(h).add(is_first_, part.values + h * sizes_.head, part.largest[h], part.sums[h],
                  sizes_.head);
    is_first_ = false;
  }

  template <class PartOf>
  void add_all(std::size_t count, PartOf part_of) {
    for (std::size_t h = 0; h < sizes_.group(); ++h)
      head(h).add_all(
          count,
          [&](std::size_t range)
              TENSOR_OPS_INLINE_LAMBDA { return part_of(range).from(h, sizes_); },
          sizes_.head);
    is_first_ = false;
  }

  void finish() const {
    for (std::size_t h = 0; h < sizes_.group(); ++h)
      head(h).finish(sizes_.head, sinks_ ? sinks_ + h : nullptr);
  }

 private:
  TENSOR_OPS_INLINE AttendedHead head(std::size_t h) const {
    return {to_.values + h * sizes_.head, to_.largest + h, to_.sums + h};
  }

  const Sizes& sizes_;
  const Partial to_;
  const float* const sinks_;
  bool is_first_ = true;
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
