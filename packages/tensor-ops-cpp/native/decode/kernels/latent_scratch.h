// The sizes and the scratch of a node of latent attention.
#pragma once

#include "decode/kernels/attention_scratch.h"

namespace tensor_ops::decode {

// Heads are computed in groups of at most so many. A group's numbers are padded to whole vectors at
// every level; tokens of a prompt are computed together up to so many padded heads.
constexpr std::size_t kMostLatentHeads = 32, kLatentPadding = 16, kLatentTogether = 64;
// What is kept of a range is widened in parts of so many elements, each part of all positions.
// Parts are kLatentPartFloats apart, which is no power of two: else those of a position would have
// the same places in the processor's caches.
constexpr std::size_t kLatentPart = 64;
constexpr std::size_t kLatentPartFloats = (kAttendedRange + 1) * kLatentPart;

struct LatentSizes {
  std::size_t heads, latent, rope, key;  // a key is a latent and what is rotated
  std::size_t query;                     // the elements of a head of the query
  std::size_t groups, padded;            // of heads; `padded` is of the largest group
  std::size_t columns;                   // of the result of a head, in whole slices
  float scale;
  bool is_interleaved;
  double eps;

  explicit DECODE_INLINE LatentSizes(const Share& share) {
    const auto of = share.attributes_as<LatentAttentionNode::Attributes>();
    heads = static_cast<std::size_t>(of.num_heads);
    latent = share.input_columns[LatentAttentionNode::kAbsorbed] / heads;
    key = share.input_columns[LatentAttentionNode::kKv];
    rope = key - latent;
    query = share.input_columns[LatentAttentionNode::kQuery] / heads;
    groups = (heads - 1) / kMostLatentHeads + 1;
    padded = rounded_up((heads - 1) / groups + 1, kLatentPadding);
    columns = rounded_up(latent, kLatentPart);
    scale = static_cast<float>(of.scale);
    is_interleaved = of.rotation == LatentAttentionNode::Rotation::kInterleaved;
    eps = of.eps;
  }

  DECODE_INLINE std::size_t first_head(std::size_t group) const { return group * heads / groups; }
  DECODE_INLINE std::size_t heads_of(std::size_t group) const {
    return first_head(group + 1) - first_head(group);
  }
  DECODE_INLINE std::size_t parts() const { return (key - 1) / kLatentPart + 1; }
  DECODE_INLINE std::size_t most_together() const {
    return padded < kLatentTogether ? kLatentTogether / padded : 1;
  }
  DECODE_INLINE std::size_t position_bytes(CacheType type) const {
    return decode::position_bytes(type, latent, rope);
  }

 private:
  static DECODE_INLINE std::size_t rounded_up(std::size_t x, std::size_t of) {
    return (x + of - 1) / of * of;
  }
};

struct LatentScratch {
  // For each thread: the queries of tokens that are computed together, each [key][padded], and of
  // heads that fill no vector [kLatentPadding / 2][parts][kLatentPart]; what is rotated of a query,
  // or what a token keeps; a range of positions as float32,
  // [parts][position][kLatentPart]; its scores, [position][padded]; its result; the largest
  // scores and sums of the tokens so far.
  Piece<float> queries, rest, row, keys, scores, partial, largest, sums;
  // For all threads: how many ranges of each pair are done, how many units threads have taken, and
  // the partial result of each range.
  Piece<std::uint32_t> done, taken;
  Piece<float> parts;
  std::size_t most_parts;
  PartialLayout layout;
  Scratch size;

  DECODE_INLINE LatentScratch(const Share& share, const LatentSizes& sizes)
      : layout(sizes.padded, sizes.columns) {
    const std::size_t together = sizes.most_together();
    const std::size_t of_heads = sizes.padded * sizes.rope;
    Pieces own, shared;
    queries = own.add<float>(together, sizes.key, sizes.padded);
    rest = own.add<float>(together * (kLatentPadding / 2), sizes.parts(), kLatentPart);
    row = own.add<float>(of_heads > sizes.key ? of_heads : sizes.key);
    keys = own.add<float>(sizes.parts(), kLatentPartFloats);
    scores = own.add<float>(kAttendedRange, sizes.padded);
    partial = own.add<float>(layout.floats);
    largest = own.add<float>(together, sizes.padded);
    sums = own.add<float>(together, sizes.padded);
    const std::size_t pages = share.cache.is_paged ? share.step->pages_per_request : 1;
    const std::size_t ranges = (pages * share.cache.page_size - 1) / kAttendedRange + 1;
    most_parts = sizes.groups * ranges;
    done = shared.add<std::uint32_t>(kMostShared);
    taken = shared.add<std::uint32_t>(1);
    parts = shared.add<float>(most_parts, layout.floats);
    size = {own.bytes(), shared.bytes()};
  }
};

}  // namespace tensor_ops::decode
