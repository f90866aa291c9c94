// latent_attention: all heads of a token attend to the latents of its request up to its own.
#include "decode/kernels/latent_attention.h"

#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::LatentAttentionNode;
using decode::LatentScratch;
using decode::LatentSizes;

// Pairs are a group of heads and a token; those of one group follow one another. A range of
// positions begins at a multiple of decode::kAttendedRange, and has sums of its own, which are the
// same whoever computes them; those of a pair are added in order.
template <class Element>
class LatentAttentionStep {
 public:
  explicit TENSOR_OPS_INLINE LatentAttentionStep(const decode::Share& share)
      : share_(share),
        sizes_(share),
        scratch_(share, sizes_),
        pairs_(share.rows * sizes_.groups),
        position_bytes_(sizes_.position_bytes(kCacheType<Element>)) {}

  // Writes what the tokens of this step keep, which are divided.
  void store_all() const {
    const std::size_t end = share_.end_of(share_.rows), latent = sizes_.latent;
    float* const kept = scratch_.row.in(share_.own);
    std::uint32_t* const done = scratch_.done.in(share_.shared);
    if (share_.thread == 0) {
      *scratch_.taken.in(share_.shared) = 0;
      for (std::size_t pair = 0; pair < pairs_ && pair < decode::kMostShared; ++pair)
        done[pair] = 0;
    }
    for (std::size_t token = share_.begin_of(share_.rows); token < end; ++token) {
      const float* const kv = input(LatentAttentionNode::kKv, token);
      run_op(rms_norm_kernels, 0,
             {{kv, latent}, {share_.parameters[LatentAttentionNode::kNorm], 0}, {kept, latent}}, 1,
             latent, sizes_.eps);
      __builtin_memcpy(kept + latent, kv + latent, sizes_.rope * sizeof(float));
      rotate(kept + latent, 1, token);
      LatentRow<Element>(bytes_of(token, position(token)), sizes_).store(kept, sizes_);
    }
  }

  // The threads divide the ranges of few pairs, and else take units of consecutive tokens.
  void attend_all() const {
    std::size_t all = 0;
    if (pairs_ < 4 * share_.threads && pairs_ <= decode::kMostShared)
      for (std::size_t pair = 0; pair < pairs_; ++pair) all += ranges(pair);
    if (all > 0 && all <= scratch_.most_parts)
      attend_ranges(share_.begin_of(all), share_.end_of(all));
    else
      attend_units();
  }

 private:
  TENSOR_OPS_INLINE const float* input(std::size_t slot, std::size_t token) const {
    return share_.in(slot) + token * share_.input_columns[slot];
  }
  TENSOR_OPS_INLINE std::size_t position(std::size_t token) const {
    return static_cast<std::size_t>(share_.step->positions[token]);
  }
  TENSOR_OPS_INLINE std::size_t token_of(std::size_t pair) const { return pair % share_.rows; }
  TENSOR_OPS_INLINE std::size_t group_of(std::size_t pair) const { return pair / share_.rows; }
  TENSOR_OPS_INLINE std::size_t ranges(std::size_t pair) const {
    return position(token_of(pair)) / decode::kAttendedRange + 1;
  }
  // How many positions of a range a token sees.
  TENSOR_OPS_INLINE std::size_t seen_of(std::size_t token, std::size_t range) const {
    const std::size_t seen = position(token) + 1 - range * decode::kAttendedRange;
    return seen < decode::kAttendedRange ? seen : decode::kAttendedRange;
  }

  // Where what a position of a token's request keeps begins; those of a page follow one another.
  TENSOR_OPS_INLINE unsigned char* bytes_of(std::size_t token, std::size_t at) const {
    const decode::CacheMemory& cache = share_.cache;
    const auto slot = static_cast<std::size_t>(share_.step->slots[token]);
    const std::int32_t* const pages =
        share_.step->page_table + slot * share_.step->pages_per_request;
    const std::size_t number =
        cache.is_paged ? static_cast<std::size_t>(pages[at / cache.page_size]) : slot;
    return cache.page(number, 0) + at % cache.page_size * position_bytes_;
  }

  TENSOR_OPS_INLINE void rotate(float* rows, std::size_t count, std::size_t token) const {
    const std::size_t angles = share_.parameter_columns[LatentAttentionNode::kCos];
    const std::size_t at = position(token) * angles;
    run_op(rope_kernels, sizes_.is_interleaved ? 1 : 0,
           {{rows, sizes_.rope},
            {share_.parameters[LatentAttentionNode::kCos] + at, 0},
            {share_.parameters[LatentAttentionNode::kSin] + at, 0},
            {rows, sizes_.rope}},
           count, 2 * angles);
  }

  // Makes the query of the pair's heads, one that is computed together with others.
  void prepare(std::size_t pair, std::size_t number) const {
    const std::size_t token = token_of(pair), first = sizes_.first_head(group_of(pair));
    const std::size_t heads = sizes_.heads_of(group_of(pair));
    const float* const absorbed =
        input(LatentAttentionNode::kAbsorbed, token) + first * sizes_.latent;
    const float* const query = input(LatentAttentionNode::kQuery, token) + first * sizes_.query;
    float* const rotated = scratch_.row.in(share_.own);
    for (std::size_t h = 0; h < heads; ++h)
      __builtin_memcpy(rotated + h * sizes_.rope, query + (h + 1) * sizes_.query - sizes_.rope,
                       sizes_.rope * sizeof(float));
    rotate(rotated, heads, token);
    const std::size_t rest = LatentRange::rest_of(heads), whole = heads - rest;
    float* const to = query_of(number);
    transpose(absorbed, sizes_.latent, whole, to);
    transpose(rotated, sizes_.rope, whole, to + sizes_.latent * sizes_.padded);
    const std::size_t row = sizes_.parts() * decode::kLatentPart;
    float* const of_rest = rest_of_query(number);
    __builtin_memset(of_rest, 0, decode::kLatentPadding / 2 * row * sizeof(float));
    for (std::size_t h = 0; h < rest; ++h) {
      __builtin_memcpy(of_rest + h * row, absorbed + (whole + h) * sizes_.latent,
                       sizes_.latent * sizeof(float));
      __builtin_memcpy(of_rest + h * row + sizes_.latent, rotated + (whole + h) * sizes_.rope,
                       sizes_.rope * sizeof(float));
    }
  }
  // Heads behind the last one are zeros.
  void transpose(const float* from, std::size_t size, std::size_t heads, float* to) const {
    for (std::size_t d = 0; d < size; ++d, to += sizes_.padded) {
      for (std::size_t h = 0; h < heads; ++h) to[h] = from[h * size + d];
      for (std::size_t h = heads; h < sizes_.padded; ++h) to[h] = 0;
    }
  }
  TENSOR_OPS_INLINE float* query_of(std::size_t number) const {
    return scratch_.queries.in(share_.own) + number * sizes_.key * sizes_.padded;
  }
  TENSOR_OPS_INLINE float* rest_of_query(std::size_t number) const {
    return scratch_.rest.in(share_.own) +
           number * (decode::kLatentPadding / 2) * sizes_.parts() * decode::kLatentPart;
  }

  // Finds what a token sees of a range.
  void find(std::size_t token, std::size_t range, RangeRows& rows) const {
    const std::size_t size = share_.cache.page_size, first = range * decode::kAttendedRange;
    rows.count = seen_of(token, range);
    for (std::size_t i = 0; i < rows.count;) {
      unsigned char* bytes = bytes_of(token, first + i);
      const std::size_t in_page = size - (first + i) % size, left = rows.count - i;
      const std::size_t behind = i + (in_page < left ? in_page : left);
      for (; i < behind; ++i, bytes += position_bytes_) rows.row[i] = bytes;
    }
  }
  void widen(const RangeRows& rows) const {
    float* const to = scratch_.keys.in(share_.own);
    for (std::size_t i = 0; i < rows.count; ++i)
      LatentRow<Element>(rows.row[i], sizes_)
          .widen(to + i * decode::kLatentPart, decode::kLatentPartFloats, sizes_);
  }

  // Computes a range, which is widened, for a pair.
  void attend(std::size_t pair, std::size_t range, std::size_t number, float* to,
              const RangeRows& next) const {
    LatentRange{sizes_,
                sizes_.heads_of(group_of(pair)),
                query_of(number),
                rest_of_query(number),
                scratch_.keys.in(share_.own),
                scratch_.scores.in(share_.own),
                Partial(to, scratch_.layout),
                next,
                position_bytes_}
        .run(seen_of(token_of(pair), range));
  }

  // The results of a pair's heads so far; of one that is computed together with others.
  template <class Visit>
  TENSOR_OPS_INLINE void for_heads(std::size_t pair, std::size_t number, Visit visit) const {
    const std::size_t first = sizes_.first_head(group_of(pair));
    float* const out = share_.out() + token_of(pair) * share_.columns + first * sizes_.latent;
    float* const largest = scratch_.largest.in(share_.own) + number * sizes_.padded;
    float* const sums = scratch_.sums.in(share_.own) + number * sizes_.padded;
    for (std::size_t h = 0; h < sizes_.heads_of(group_of(pair)); ++h)
      visit(h, AttendedHead{out + h * sizes_.latent, largest + h, sums + h});
  }
  void add(std::size_t pair, std::size_t number, bool is_first, float* memory) const {
    const Partial part(memory, scratch_.layout);
    for_heads(pair, number, [&](std::size_t h, const AttendedHead& head) {
      head.add(is_first, part.values + h * sizes_.columns, part.largest[h], part.sums[h],
               sizes_.latent);
    });
  }
  void finish(std::size_t pair, std::size_t number) const {
    for_heads(pair, number,
              [&](std::size_t, const AttendedHead& head) { head.finish(sizes_.latent, nullptr); });
  }

  // Computes ranges by their numbers among all ranges of all pairs. The thread that finishes the
  // last range of a pair adds up the pair's results.
  void attend_ranges(std::size_t begin, std::size_t end) const {
    float* const parts = scratch_.parts.in(share_.shared);
    const auto part = [&](std::size_t number) { return parts + number * scratch_.layout.floats; };
    std::size_t first = 0;  // of the pair
    for (std::size_t pair = 0; first < end; first += ranges(pair), ++pair) {
      const std::size_t count = ranges(pair);
      const std::size_t from = begin > first ? begin - first : 0;
      const std::size_t to = end - first < count ? end - first : count;
      if (from >= to) continue;
      prepare(pair, 0);
      RangeRows seen{}, next{};
      find(token_of(pair), from, next);
      for (std::size_t range = from; range < to; ++range) {
        seen = next;
        next.count = 0;
        if (range + 1 < to) find(token_of(pair), range + 1, next);
        widen(seen);
        attend(pair, range, 0, part(first + range), next);
      }
      const auto mine = static_cast<std::uint32_t>(to - from);
      if (__atomic_add_fetch(scratch_.done.in(share_.shared) + pair, mine, __ATOMIC_ACQ_REL) !=
          count)
        continue;
      for (std::size_t range = 0; range < count; ++range)
        add(pair, 0, range == 0, part(first + range));
      finish(pair, 0);
    }
  }

  // Units are numbered with late tokens first, as these take longest. Whoever is done takes the
  // next one; no result depends on who computes it.
  void attend_units() const {
    std::uint32_t* const taken = scratch_.taken.in(share_.shared);
    constexpr std::size_t kUnitsOfThread = 4;
    const std::size_t each = pairs_ / (kUnitsOfThread * share_.threads);
    std::size_t most = sizes_.most_together() < each ? sizes_.most_together() : each;
    if (most < 1) most = 1;
    std::size_t unit = 0, wanted = __atomic_fetch_add(taken, 1u, __ATOMIC_RELAXED);
    for (std::size_t group = 0; group < sizes_.groups; ++group)
      for (std::size_t end = share_.rows; end > 0; ++unit) {
        std::size_t count = 1;
        while (count < most && count < end && are_neighbours(end - count - 1)) ++count;
        end -= count;
        if (unit != wanted) continue;
        attend_together(group * share_.rows + end, count);
        wanted = __atomic_fetch_add(taken, 1u, __ATOMIC_RELAXED);
      }
  }
  // Whether a token and the next one are of one request and see the same ranges.
  TENSOR_OPS_INLINE bool are_neighbours(std::size_t token) const {
    return share_.step->slots[token] == share_.step->slots[token + 1] &&
           position(token) + 1 == position(token + 1) &&
           position(token + 1) % decode::kAttendedRange != 0;
  }

  // Computes consecutive tokens, for which each range is widened once.
  void attend_together(std::size_t first, std::size_t tokens) const {
    const std::size_t last = first + tokens - 1;
    float* const partial = scratch_.partial.in(share_.own);
    for (std::size_t t = 0; t < tokens; ++t) prepare(first + t, t);
    const RangeRows none{};
    RangeRows seen{}, next{};
    find(token_of(last), 0, next);
    for (std::size_t range = 0; range < ranges(last); ++range) {
      seen = next;
      next.count = 0;
      if (range + 1 < ranges(last)) find(token_of(last), range + 1, next);
      widen(seen);
      for (std::size_t t = 0; t < tokens; ++t) {
        attend(first + t, range, t, partial, t == 0 ? next : none);
        add(first + t, t, range == 0, partial);
      }
    }
    for (std::size_t t = 0; t < tokens; ++t) finish(first + t, t);
  }

  const decode::Share& share_;
  const LatentSizes sizes_;
  const LatentScratch scratch_;
  const std::size_t pairs_, position_bytes_;
};

template <class Run>
TENSOR_OPS_INLINE void for_latent_type(const decode::Share& share, Run run) {
  switch (share.cache.type) {
    case decode::CacheType::kFloat32:
      return run(LatentAttentionStep<Float32>(share));
    case decode::CacheType::kFloat16:
      return run(LatentAttentionStep<Float16>(share));
    case decode::CacheType::kInt8:
      return run(LatentAttentionStep<Int8>(share));
  }
}

decode::Scratch scratch_of_latent_attention(const decode::Share& share) {
  return LatentScratch(share, LatentSizes(share)).size;
}
void store_latents(const decode::Share& share) {
  for_latent_type(share, [](const auto& step) { step.store_all(); });
}
void attend_to_latents(const decode::Share& share) {
  for_latent_type(share, [](const auto& step) { step.attend_all(); });
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(latent_attention, store_latents, attend_to_latents, true, scratch_of_latent_attention)
