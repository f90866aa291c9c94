// attention: of each query head of a token to the keys of its request up to its own position.
#include "decode/executor/node.h"

namespace tensor_ops::decode {
namespace {

// Pairs of a token and a key/value head whose ranges may be divided among the threads.
constexpr std::size_t kMostShared = 1024;

DECODE_INLINE std::size_t most_ranges(std::size_t positions) {
  return (positions - 1) / kAttendedRange + 1;
}
// Of what a group of query heads has of a range: values, and for each head two numbers.
DECODE_INLINE std::size_t part_floats(std::size_t group, std::size_t head_size) {
  return (group * (head_size + 2) + 15) / 16 * 16;
}
// A block of keys and values, and all that a range needs where blocks of the cache are cut by
// pages.
DECODE_INLINE std::size_t block_bytes(CacheType type, std::size_t head_size) {
  return kCacheBlock * position_bytes(type, head_size);
}
DECODE_INLINE std::size_t assembled_bytes(CacheType type, std::size_t head_size, std::size_t page) {
  return page % kCacheBlock ? kMostBlocks * block_bytes(type, head_size) : 0;
}

}  // namespace
}  // namespace tensor_ops::decode

#if KERNEL_PASS

#include "decode/kernels/attention_int8.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::kAttendedRange;
using decode::kMostShared;
using decode::Share;

TENSOR_OPS_INLINE std::size_t aligned_floats(std::size_t count) {
  return (count + kBlock - 1) / kBlock * kBlock;
}

// Normalises and rotates heads of a token into `to`. The norm is parameter 2 or 3.
void prepare_heads(const Share& share, const Sizes& sizes, const float* heads, std::size_t count,
                   std::size_t norm, std::size_t position, float* to) {
  const std::size_t size = sizes.head;
  if (share.parameters[norm])
    run_op(rms_norm_kernels, 0, {{heads, size}, {share.parameters[norm], 0}, {to, size}}, count,
           size, sizes.eps);
  else
    __builtin_memcpy(to, heads, count * size * sizeof(float));
  if (!share.parameters[0]) return;
  const std::size_t angles = share.parameter_columns[0], row = position * angles;
  run_op(rope_kernels, sizes.is_interleaved ? 1 : 0,
         {{to, size}, {share.parameters[0] + row, 0}, {share.parameters[1] + row, 0}, {to, size}},
         count, 2 * angles);
}

template <class Element>
TENSOR_OPS_INLINE HeadCache<Element> head_cache(const Share& share, std::size_t token,
                                                std::size_t head) {
  const auto slot = static_cast<std::size_t>(share.step->slots[token]);
  return {share.cache, share.step->page_table + slot * share.step->pages_per_request, slot, head};
}

// The work of a step: of each pair of a token and a key/value head the ranges of positions that the
// token sees. Pairs of one head follow one another: tokens of a prompt find its keys in the caches.
// A range begins at a multiple of kAttendedRange, and has sums of its own, so that they are the
// same whoever computes it.
class Ranges {
 public:
  explicit TENSOR_OPS_INLINE Ranges(const Share& share)
      : share_(share), sizes_(share.attributes), pairs_(share.rows * sizes_.kv_heads) {}

  TENSOR_OPS_INLINE const Sizes& sizes() const { return sizes_; }
  TENSOR_OPS_INLINE std::size_t pairs() const { return pairs_; }
  TENSOR_OPS_INLINE std::size_t token(std::size_t pair) const { return pair % share_.rows; }
  TENSOR_OPS_INLINE std::size_t kv_head(std::size_t pair) const { return pair / share_.rows; }
  TENSOR_OPS_INLINE std::size_t position(std::size_t pair) const {
    return static_cast<std::size_t>(share_.step->positions[token(pair)]);
  }
  TENSOR_OPS_INLINE std::size_t count(std::size_t pair) const {
    return position(pair) / kAttendedRange - first(pair) + 1;
  }
  TENSOR_OPS_INLINE std::size_t begin(std::size_t pair, std::size_t range) const {
    const std::size_t seen = sizes_.first_seen(position(pair));
    const std::size_t whole = (first(pair) + range) * kAttendedRange;
    return seen > whole ? seen : whole;
  }
  TENSOR_OPS_INLINE std::size_t end(std::size_t pair, std::size_t range) const {
    const std::size_t seen = position(pair) + 1;
    const std::size_t whole = (first(pair) + range + 1) * kAttendedRange;
    return seen < whole ? seen : whole;
  }

 private:
  TENSOR_OPS_INLINE std::size_t first(std::size_t pair) const {
    return sizes_.first_seen(position(pair)) / kAttendedRange;
  }

  const Share& share_;
  const Sizes sizes_;
  const std::size_t pairs_;
};

template <class Element, std::size_t heads>
void attend(const RangeQuery<Element>& query, std::size_t count) {
  if constexpr (heads > 1)
    if (count < heads) return attend<Element, heads - 1>(query, count);
  Query<Element, heads>{query}.run();
}

template <class Element>
class Attention {
 public:
  // Writes the keys and values of this step to the cache: pairs of a token and a head are divided.
  static void store_all(const Share& share) {
    const Sizes sizes(share.attributes);
    const std::size_t row = share.input_columns[0], size = sizes.head;
    const std::size_t pairs = share.rows * sizes.kv_heads, end = share.end_of(pairs);
    auto* const key = reinterpret_cast<float*>(share.own);
    for (std::size_t pair = share.begin_of(pairs); pair < end; ++pair) {
      const std::size_t token = pair / sizes.kv_heads, head = pair % sizes.kv_heads;
      const auto position = static_cast<std::size_t>(share.step->positions[token]);
      const float* const keys = share.in(0) + token * row + (sizes.heads + head) * size;
      prepare_heads(share, sizes, keys, 1, 3, position, key);
      head_cache<Element>(share, token, head)
          .block_of(position)
          .store(position % share.cache.page_size % kBlock, key, keys + sizes.kv_heads * size);
      if (pair < kMostShared) done_of(share)[pair] = 0;
    }
  }

  explicit TENSOR_OPS_INLINE Attention(const Share& share)
      : share_(share),
        ranges_(share),
        sizes_(ranges_.sizes()),
        part_floats_(decode::part_floats(sizes_.group(), sizes_.head)),
        assembled_(decode::assembled_bytes(share.cache.type, sizes_.head, share.cache.page_size)),
        heads_(reinterpret_cast<float*>(share.own + 2 * assembled_)),
        attended_(heads_ + aligned_floats(sizes_.group() * sizes_.head)),
        part_(attended_ + aligned_floats(2 * sizes_.group())),
        query_(is_int8 ? part_ + part_floats_ : heads_),
        scratch_(part_ + part_floats_ +
                 (is_int8 ? aligned_floats(sizes_.group() * query_floats()) : 0)) {
    seen_->assembled = share.own;
    next_->assembled = share.own + assembled_;
  }

  // Pairs are taken in turn where there are many, since late positions take longer than early
  // ones. Of few, the ranges are divided.
  void run() {
    next_->pair = ranges_.pairs();  // none
    const std::size_t pairs = ranges_.pairs();
    std::size_t all = 0;
    if (pairs < 4 * share_.threads && pairs <= kMostShared)
      for (std::size_t pair = 0; pair < pairs; ++pair) all += ranges_.count(pair);
    if (all > 0 && all <= sizes_.kv_heads * most_ranges())
      run_shared(share_.begin_of(all), share_.end_of(all));
    else
      for (std::size_t pair = share_.thread; pair < pairs; pair += share_.threads) run_alone(pair);
  }

 private:
  // How many ranges of a pair are done, and behind these numbers what was found of each range.
  static TENSOR_OPS_INLINE std::uint32_t* done_of(const Share& share) {
    return reinterpret_cast<std::uint32_t*>(share.shared);
  }
  TENSOR_OPS_INLINE float* shared_part(std::size_t number) const {
    return reinterpret_cast<float*>(done_of(share_) + kMostShared) + number * part_floats_;
  }
  TENSOR_OPS_INLINE std::size_t most_ranges() const {
    const std::size_t pages = share_.cache.is_paged ? share_.step->pages_per_request : 1;
    return decode::most_ranges(pages * share_.cache.page_size);
  }

  // The ranges with these numbers, of all ranges of all pairs. Who does the last one of a pair adds
  // them up.
  void run_shared(std::size_t begin, std::size_t end) {
    std::size_t first = 0;  // of the pair
    for (std::size_t pair = 0; first < end; ++pair) {
      const std::size_t count = ranges_.count(pair);
      const std::size_t from = begin > first ? begin - first : 0;
      const std::size_t to = end - first < count ? end - first : count;
      if (from < to) {
        prepare_query(pair);
        for (std::size_t range = from; range < to; ++range) {
          const bool is_last = range + 1 == count, is_end = first + range + 1 == end;
          run_range(pair, range, is_last && !is_end ? pair + 1 : pair,
                    is_last ? (is_end ? range : 0) : range + 1, shared_part(first + range));
        }
        const auto mine = static_cast<std::uint32_t>(to - from);
        if (__atomic_add_fetch(done_of(share_) + pair, mine, __ATOMIC_ACQ_REL) == count) {
          Attended attended(sizes_, attended_, out(pair));
          for (std::size_t range = 0; range < count; ++range)
            attended.add(Partial(shared_part(first + range), sizes_));
          attended.finish();
        }
      }
      first += count;
    }
  }

  void run_alone(std::size_t pair) {
    const std::size_t count = ranges_.count(pair), next = pair + share_.threads;
    prepare_query(pair);
    Attended attended(sizes_, attended_, out(pair));
    for (std::size_t range = 0; range < count; ++range) {
      const bool goes_on = range + 1 == count && next < ranges_.pairs();
      run_range(pair, range, goes_on ? next : pair,
                goes_on             ? 0
                : range + 1 < count ? range + 1
                                    : range,
                part_);
      attended.add(Partial(part_, sizes_));
    }
    attended.finish();
  }

  TENSOR_OPS_INLINE float* out(std::size_t pair) const {
    return share_.out() + ranges_.token(pair) * share_.columns +
           ranges_.kv_head(pair) * sizes_.group() * sizes_.head;
  }

  void prepare_query(std::size_t pair) const {
    const float* const heads = share_.in(0) + ranges_.token(pair) * share_.input_columns[0] +
                               ranges_.kv_head(pair) * sizes_.group() * sizes_.head;
    prepare_heads(share_, sizes_, heads, sizes_.group(), 2, ranges_.position(pair), heads_);
    if constexpr (is_int8)
      for (std::size_t h = 0; h < sizes_.group(); ++h)
        Int8Head(query_ + h * query_floats(), sizes_.head)
            .fill(heads_ + h * sizes_.head, sizes_.head);
  }

  static constexpr bool is_int8 = std::is_same_v<Element, Int8>;

  TENSOR_OPS_INLINE std::size_t query_floats() const {
    return is_int8 ? Int8Head::floats(sizes_.head) : sizes_.head;
  }

  // The heads of a pair's query, and one range; another one is prefetched.
  void run_range(std::size_t pair, std::size_t range, std::size_t next_pair, std::size_t next_range,
                 float* to) {
    if (next_->pair == pair && next_->range == range) {
      RangeBlocks* const found = next_;
      next_ = seen_;
      seen_ = found;
    } else {
      fill(*seen_, pair, range);
    }
    fill(*next_, next_pair, next_range);
    const std::size_t group = sizes_.group();
    for (std::size_t head = 0; head < group; head += kMostHeads)
      attend<Element, kMostHeads>({sizes_, *seen_, *next_, query_ + head * query_floats(), scratch_,
                                   Partial(to, sizes_).from(head, sizes_)},
                                  group - head);
  }

  void fill(RangeBlocks& blocks, std::size_t pair, std::size_t range) const {
    const auto cache = head_cache<Element>(share_, ranges_.token(pair), ranges_.kv_head(pair));
    blocks.fill(cache, ranges_.begin(pair, range), ranges_.end(pair, range),
                decode::block_bytes(share_.cache.type, sizes_.head));
    blocks.pair = pair;
    blocks.range = range;
  }

  const Share& share_;
  const Ranges ranges_;
  const Sizes& sizes_;
  const std::size_t part_floats_, assembled_;
  float *const heads_, *const attended_, *const part_, *const query_, *const scratch_;
  RangeBlocks blocks_[2];
  RangeBlocks *seen_ = blocks_, *next_ = blocks_ + 1;
};

template <class Run>
TENSOR_OPS_INLINE void for_type(const Share& share, Run run) {
  switch (share.cache.type) {
    case decode::CacheType::kFloat32:
      return run(Float32());
    case decode::CacheType::kFloat16:
      return run(Float16());
    case decode::CacheType::kInt8:
      return run(Int8());
  }
}

void store_all(const Share& share) {
  for_type(share, [&](auto element) { Attention<decltype(element)>::store_all(share); });
}

void attend_all(const Share& share) {
  for_type(share, [&](auto element) { Attention<decltype(element)>(share).run(); });
}

}  // namespace

EXPORT_NODE(attention, store_all, attend_all)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

#include "declaration/errors.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

// Of its own a thread has the blocks of two ranges, the query heads of a pair, their results, and
// what a Query wants: for up to four heads the scores of a range; of int8 the heads once more, and
// rows of weights.
Scratch scratch(const Program& program, const Node& node) {
  constexpr std::size_t kMostHeads = 4;
  const Cache& cache = program.caches[node.cache];
  const Limits& limits = program.limits;
  const std::size_t page = cache.is_paged ? limits.page_size : limits.max_seq_length;
  const std::size_t positions =
      size_product(node.where(), cache.is_paged ? limits.pages_per_request() : 1, page);
  const std::size_t group = static_cast<std::size_t>(node.attribute("num_heads")) /
                            static_cast<std::size_t>(node.attribute("num_kv_heads"));
  const std::size_t size = cache.head_size;
  const std::size_t scales = cache.type == CacheType::kInt8 ? scales_of(size) : 0;
  const std::size_t part = part_floats(group, size);
  const std::size_t floats = 2 * aligned(group * (size + scales) * 4) / 4 +
                             aligned(2 * group * 4) / 4 + part +
                             kMostHeads * (kAttendedRange * (2 + scales) + scales);
  const std::size_t parts =
      size_product(node.where(), cache.num_kv_heads, most_ranges(positions), part, sizeof(float));
  return {2 * assembled_bytes(cache.type, size, page) +
              aligned(size_product(node.where(), floats, sizeof(float))),
          aligned(kMostShared * sizeof(std::uint32_t) + parts)};
}

}  // namespace

DECLARE_NODE(attention, scratch)

}  // namespace tensor_ops::decode

#endif
