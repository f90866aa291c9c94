// Attention of a step's tokens: each query head of a token attends to the keys of its request up to
// its own position. The keys and values are those of the node, which stores them first, or what
// another node has stored.
#pragma once

#include "decode/kernels/attention_int8.h"
#include "decode/kernels/attention_ranges.h"
#include "decode/kernels/attention_together.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::AttentionNode;
using decode::AttentionScratch;
using decode::Int8HeadLayout;
using decode::kMostShared;
using decode::PartialLayout;
using decode::Share;
using decode::SharedAttentionScratch;

// Writes heads of a token to `to`, normalised.
TENSOR_OPS_INLINE void normalise_heads(const Share& share, const Sizes& sizes, const float* heads,
                                       std::size_t count, std::size_t norm, float* to) {
  const std::size_t size = sizes.head;
  if (share.parameters[norm])
    run_op(rms_norm_kernels, 0, {{heads, size}, {share.parameters[norm], 0}, {to, size}}, count,
           size, sizes.eps);
  else
    __builtin_memcpy(to, heads, count * size * sizeof(float));
}

// Writes heads of a token to `to`, normalised and rotated.
void prepare_heads(const Share& share, const Sizes& sizes, const float* heads, std::size_t count,
                   std::size_t norm, std::size_t position, float* to) {
  normalise_heads(share, sizes, heads, count, norm, to);
  if (!share.parameters[AttentionNode::kCos]) return;
  const std::size_t size = sizes.head, angles = share.parameter_columns[AttentionNode::kCos];
  run_op(rope_kernels, sizes.is_interleaved ? 1 : 0,
         {{to, size},
          {share.parameters[AttentionNode::kCos] + position * angles, 0},
          {share.parameters[AttentionNode::kSin] + position * angles, 0},
          {to, size}},
         count, 2 * angles);
}

template <class Element>
TENSOR_OPS_INLINE HeadCache<Element> head_cache(const Share& share, std::size_t token,
                                                std::size_t head) {
  const auto slot = static_cast<std::size_t>(share.step->slots[token]);
  return {share.cache, share.step->page_table + slot * share.step->pages_per_request, slot, head};
}

template <class Element, std::size_t heads>
void attend(const RangeQuery<Element>& query, std::size_t count) {
  if constexpr (heads > 1)
    if (count < heads) return attend<Element, heads - 1>(query, count);
  Query<Element, heads>{query}.run();
}

// The nodes of both kinds have the same attributes, and the weights of queries have the same
// numbers.
template <class Element>
class Attention {
 public:
  static decode::Scratch scratch(const Share& share) {
    const Sizes sizes(share.attributes_as<AttentionNode::Attributes>());
    return {own_of(share, sizes).bytes, shared_of(share, sizes).bytes};
  }

  // Makes the memory ready that threads share. The pairs of a token and a head are divided.
  static void begin(const Share& share) {
    const Sizes sizes(share.attributes_as<AttentionNode::Attributes>());
    const std::size_t pairs = share.rows * sizes.kv_heads, end = share.end_of(pairs);
    std::uint32_t* const done = shared_of(share, sizes).done.in(share.shared);
    if (share.thread == 0) *shared_of(share, sizes).taken.in(share.shared) = 0;
    for (std::size_t pair = share.begin_of(pairs); pair < end && pair < kMostShared; ++pair)
      done[pair] = 0;
  }

  // Writes the keys and values of this step to the cache: pairs of a token and a head are divided.
  static void store_all(const Share& share) {
    const Sizes sizes(share.attributes_as<AttentionNode::Attributes>());
    const std::size_t row = share.input_columns[0], size = sizes.head;
    const std::size_t pairs = share.rows * sizes.kv_heads, end = share.end_of(pairs);
    float* const key = own_of(share, sizes).heads.in(share.own);
    for (std::size_t pair = share.begin_of(pairs); pair < end; ++pair) {
      const std::size_t token = pair / sizes.kv_heads, head = pair % sizes.kv_heads;
      const auto position = static_cast<std::size_t>(share.step->positions[token]);
      const float* const keys = share.in(0) + token * row + (sizes.heads + head) * size;
      prepare_heads(share, sizes, keys, 1, AttentionNode::kKNorm, position, key);
      const float* value = keys + sizes.kv_heads * size;
      if (share.parameters[AttentionNode::kVNorm]) {
        normalise_heads(share, sizes, value, 1, AttentionNode::kVNorm, key + size);
        value = key + size;
      }
      head_cache<Element>(share, token, head)
          .block_of(position)
          .store(position % share.cache.page_size % kBlock, key, value);
    }
  }

  explicit TENSOR_OPS_INLINE Attention(const Share& share)
      : share_(share),
        ranges_(share),
        sizes_(ranges_.sizes()),
        layout_of_part_(sizes_.group(), sizes_.head),
        own_(own_of(share, sizes_)),
        shared_(shared_of(share, sizes_)),
        heads_(own_.heads.in(share.own)),
        query_((is_int8 ? own_.int8_heads : own_.heads).in(share.own)) {
    seen_->assembled = own_.assembled[0].in(share.own);
    next_->assembled = own_.assembled[1].in(share.own);
  }

  // The threads divide the ranges of few pairs, take units of a prompt's tokens, and else pairs in
  // turn, since late positions take longer than early ones.
  void run() {
    next_->pair = ranges_.pairs();  // none
    const std::size_t pairs = ranges_.pairs();
    std::size_t all = 0;
    if (pairs < 4 * share_.threads && pairs <= kMostShared)
      for (std::size_t pair = 0; pair < pairs; ++pair) all += ranges_.count(pair);
    if (all > 0 && all <= shared_.most_parts)
      run_shared(share_.begin_of(all), share_.end_of(all));
    else if (!is_int8 && ranges_.has_neighbours())
      run_units();
    else
      for (std::size_t pair = share_.thread; pair < pairs; pair += share_.threads)
        run_alone(pair, pair + share_.threads);
  }

 private:
  static TENSOR_OPS_INLINE AttentionScratch own_of(const Share& share, const Sizes& sizes) {
    return {kCacheType<Element>, share.cache.page_size, sizes.group(), sizes.head};
  }
  static TENSOR_OPS_INLINE SharedAttentionScratch shared_of(const Share& share,
                                                            const Sizes& sizes) {
    const std::size_t pages = share.cache.is_paged ? share.step->pages_per_request : 1;
    return {pages * share.cache.page_size, sizes.kv_heads, {sizes.group(), sizes.head}};
  }
  TENSOR_OPS_INLINE float* shared_part(std::size_t number) const {
    return shared_.parts.in(share_.shared) + number * layout_of_part_.floats;
  }
  TENSOR_OPS_INLINE Attended attended(std::size_t pair) const {
    return {
        sizes_, {out(pair), own_.largest.in(share_.own), own_.sums.in(share_.own)}, sinks_of(pair)};
  }
  // Those of the heads of a pair's query; null where there are none.
  TENSOR_OPS_INLINE const float* sinks_of(std::size_t pair) const {
    const float* const sinks = share_.parameters[AttentionNode::kSinks];
    return sinks ? sinks + ranges_.kv_head(pair) * sizes_.group() : nullptr;
  }

  // Computes ranges by their numbers among all ranges of all pairs. The thread that finishes the
  // last range of a pair adds up the pair's results.
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
        if (__atomic_add_fetch(shared_.done.in(share_.shared) + pair, mine, __ATOMIC_ACQ_REL) ==
            count) {
          Attended all = attended(pair);
          all.add_all(count, [&](std::size_t range) TENSOR_OPS_INLINE_LAMBDA {
            return Partial(shared_part(first + range), layout_of_part_);
          });
          all.finish();
        }
      }
      first += count;
    }
  }

  // Units are numbered with late tokens first, as these take longest. Whoever is done takes the
  // next one; no result depends on who computes it.
  void run_units() {
    std::uint32_t* const taken = shared_.taken.in(share_.shared);
    const std::size_t most = ranges_.most_together(share_.threads);
    std::size_t unit = 0, wanted = __atomic_fetch_add(taken, 1u, __ATOMIC_RELAXED);
    for (std::size_t head = 0; head < sizes_.kv_heads; ++head)
      for (std::size_t end = share_.rows; end > 0; ++unit) {
        const std::size_t count = ranges_.together(end, most);
        end -= count;
        if (unit != wanted) continue;
        const std::size_t pair = head * share_.rows + end;
        if (count == 1)
          run_alone(pair, ranges_.pairs());
        else if constexpr (!is_int8)
          run_together(pair, count);
        wanted = __atomic_fetch_add(taken, 1u, __ATOMIC_RELAXED);
      }
  }

  // Computes the pairs of one head and consecutive tokens, which have the same ranges.
  void run_together(std::size_t first, std::size_t tokens) {
    const std::size_t group = sizes_.group(), last = first + tokens - 1;
    const decode::TogetherLayout layout(sizes_.head);
    float* const memory = own_.together.in(share_.own);
    const TokensTogether together(sizes_, tokens, memory);
    for (std::size_t t = 0; t < tokens; ++t)
      prepare_query(first + t, memory + layout.results + t * group * sizes_.head);
    together.take_queries(memory + layout.results);
    SeenPart parts[decode::kMostTogether];
    for (std::size_t range = 0; range < ranges_.count(last); ++range) {
      const std::size_t begin = ranges_.begin(first, range), base = begin / kBlock * kBlock;
      for (std::size_t t = 0; t < tokens; ++t) {
        const SeenPart part{ranges_.begin(first + t, range) - base,
                            ranges_.end(first + t, range) - base};
        for (std::size_t h = 0; h < group; ++h) parts[t * group + h] = part;
      }
      fill(*seen_, last, range, begin);
      together.widen<Element>(*seen_);
      together.run(seen_->count, parts);
      for_heads(first, tokens, [&](std::size_t head, float* values) {
        together.add_to(head, range == 0, values);
      });
    }
    const float* const sinks = sinks_of(first);
    for_heads(first, tokens, [&](std::size_t head, float* values) {
      together.finish(head, values, sinks ? sinks + head % group : nullptr);
    });
  }

  // visit(number among the heads of the tokens, result)
  template <class Visit>
  TENSOR_OPS_INLINE void for_heads(std::size_t first, std::size_t tokens, Visit visit) const {
    const std::size_t group = sizes_.group();
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t h = 0; h < group; ++h)
        visit(t * group + h, out(first + t) + h * sizes_.head);
  }

  // `next` is the pair that this thread computes afterwards, if there is one.
  void run_alone(std::size_t pair, std::size_t next) {
    const std::size_t count = ranges_.count(pair);
    prepare_query(pair);
    Attended all = attended(pair);
    float* const part = own_.partial.in(share_.own);
    for (std::size_t range = 0; range < count; ++range) {
      const bool goes_on = range + 1 == count && next < ranges_.pairs();
      run_range(pair, range, goes_on ? next : pair,
                goes_on             ? 0
                : range + 1 < count ? range + 1
                                    : range,
                part);
      all.add(Partial(part, layout_of_part_));
    }
    all.finish();
  }

  TENSOR_OPS_INLINE float* out(std::size_t pair) const {
    return share_.out() + ranges_.row(pair) * share_.columns +
           ranges_.kv_head(pair) * sizes_.group() * sizes_.head;
  }

  void prepare_query(std::size_t pair, float* to) const {
    const float* const heads = share_.in(0) + ranges_.row(pair) * share_.input_columns[0] +
                               ranges_.kv_head(pair) * sizes_.group() * sizes_.head;
    prepare_heads(share_, sizes_, heads, sizes_.group(), AttentionNode::kQNorm,
                  ranges_.position(pair), to);
    if (const float* const scale = share_.parameters[AttentionNode::kQueryScale])
      for (std::size_t i = 0; i < sizes_.group() * sizes_.head; ++i)
        to[i] *= scale[ranges_.position(pair)];
  }
  void prepare_query(std::size_t pair) const {
    prepare_query(pair, heads_);
    if constexpr (is_int8)
      for (std::size_t h = 0; h < sizes_.group(); ++h)
        Int8Head(query_ + h * query_floats(), sizes_.head)
            .fill(heads_ + h * sizes_.head, sizes_.head);
  }

  static constexpr bool is_int8 = std::is_same_v<Element, Int8>;

  TENSOR_OPS_INLINE std::size_t query_floats() const {
    return is_int8 ? Int8HeadLayout(sizes_.head).floats : sizes_.head;
  }

  // Computes one range for all heads of a pair's query, and prefetches the next range.
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
      attend<Element, kMostHeads>({{sizes_, Partial(to, layout_of_part_).from(head, sizes_)},
                                   *seen_,
                                   *next_,
                                   query_ + head * query_floats(),
                                   own_.query.in(share_.own)},
                                  group - head);
  }

  void fill(RangeBlocks& blocks, std::size_t pair, std::size_t range) const {
    fill(blocks, pair, range, ranges_.begin(pair, range));
  }
  void fill(RangeBlocks& blocks, std::size_t pair, std::size_t range, std::size_t begin) const {
    const auto cache = head_cache<Element>(share_, ranges_.token(pair), ranges_.kv_head(pair));
    blocks.fill(cache, begin, ranges_.end(pair, range));
    blocks.pair = pair;
    blocks.range = range;
  }

  const Share& share_;
  const Ranges ranges_;
  const Sizes& sizes_;
  const PartialLayout layout_of_part_;
  const AttentionScratch own_;
  const SharedAttentionScratch shared_;
  float *const heads_, *const query_;
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

decode::Scratch scratch_of_attention(const Share& share) {
  decode::Scratch wanted;
  for_type(share, [&](auto element) { wanted = Attention<decltype(element)>::scratch(share); });
  return wanted;
}

void attend_all(const Share& share) {
  for_type(share, [&](auto element) { Attention<decltype(element)>(share).run(); });
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
