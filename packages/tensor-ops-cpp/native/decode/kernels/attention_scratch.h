// The scratch of a node of attention.
#pragma once

#include "decode/executor/share.h"

namespace tensor_ops::decode {

// Pairs of a token and a key/value head whose ranges may be divided among the threads.
constexpr std::size_t kMostShared = 1024;
// Heads that share a pass over keys and values at any level.
constexpr std::size_t kMostQueryHeads = 4;

// Tokens of a prompt whose positions are in one block are computed together: as many as have this
// number of query heads.
constexpr std::size_t kMostTogether = 48;

// One partial result per (query-head group, range): values [head][d], and per head its maximum and
// its sum. All numbers count floats.
struct PartialLayout {
  std::size_t largest, sums, floats;

  DECODE_INLINE PartialLayout(std::size_t group, std::size_t head_size)
      : largest(group * head_size),
        sums(largest + group),
        floats(aligned((sums + group) * sizeof(float)) / sizeof(float)) {}
};

// A query head beside keys in int8: its elements in int16, filled up to an even number, and a step
// for each group of elements that has a scale. All numbers count floats.
struct Int8HeadLayout {
  std::size_t steps, floats;

  explicit DECODE_INLINE Int8HeadLayout(std::size_t head_size)
      : steps((head_size + 1) / 2), floats(steps + scales_of(head_size)) {}
};

// The memory of a query beside keys in int8, for some heads and `stride` positions, an even number:
// for each head a row of scores, and a row of scores times the scales of values; then for each
// group of elements and each head a step, and a row of weights in int16. All numbers count floats.
struct Int8QueryLayout {
  std::size_t scaled, steps, weights, floats;

  DECODE_INLINE Int8QueryLayout(std::size_t heads, std::size_t stride, std::size_t head_size)
      : scaled(heads * stride),
        steps(scaled + heads * stride),
        weights(steps + scales_of(head_size) * heads),
        floats(weights + scales_of(head_size) * heads * stride / 2) {}
};

// The bytes of a block of keys and values of one head.
DECODE_INLINE std::size_t block_bytes(CacheType type, std::size_t head_size) {
  return kCacheBlock * position_bytes(type, head_size, head_size);
}

// The elements of queries are kept in parts of kQueryPart, each part for all heads in turn, so that
// the distance between heads is a constant of the instructions.
constexpr std::size_t kQueryPart = 128;

// The memory of some consecutive tokens beside a range of positions of one head, all as float32.
// A slice is 16 elements of a head. All numbers count floats.
struct TogetherLayout {
  std::size_t slices, parts, keys, values, queries, scores, results, largest, sums, all_largest,
      all_sums, floats;

  explicit DECODE_INLINE TogetherLayout(std::size_t head_size)
      : slices((head_size + kCacheBlock - 1) / kCacheBlock),
        parts((head_size + kQueryPart - 1) / kQueryPart),
        keys(0),
        values(keys + kAttendedRange * head_size),
        queries(values + kAttendedRange * slices * kCacheBlock),
        scores(queries + kMostTogether * parts * kQueryPart),
        results(scores + kMostTogether * kAttendedRange),
        largest(results + kMostTogether * slices * kCacheBlock),
        sums(largest + kMostTogether),
        all_largest(sums + kMostTogether),
        all_sums(all_largest + kMostTogether),
        floats(all_sums + kMostTogether) {}
};

// The scratch of a thread, for a group of query heads.
struct AttentionScratch {
  Piece<unsigned char>
      assembled[2];            // the blocks of two ranges, where pages cut those of the cache
  Piece<float> heads;          // the heads of a query; while they are stored, a key and a value
  Piece<float> largest, sums;  // of the results so far; their values are in the output
  Piece<float> partial;
  Piece<float> int8_heads;  // the heads of the query in int16, beside keys in int8
  Piece<float> query;       // the scores of a range, and what follows from them
  Piece<float> together;    // of tokens that are computed together
  std::size_t bytes;

  DECODE_INLINE AttentionScratch(CacheType type, std::size_t page_size, std::size_t group,
                                 std::size_t head_size) {
    const bool is_int8 = type == CacheType::kInt8;
    const std::size_t cut_blocks = page_size % kCacheBlock ? kMostBlocks : 0;
    Pieces own;
    for (auto& blocks : assembled)
      blocks = own.add<unsigned char>(cut_blocks, block_bytes(type, head_size));
    heads = own.add<float>(group < 2 ? 2 : group, head_size);
    largest = own.add<float>(group);
    sums = own.add<float>(group);
    partial = own.add<float>(PartialLayout(group, head_size).floats);
    int8_heads = own.add<float>(is_int8 ? group : 0, Int8HeadLayout(head_size).floats);
    query =
        own.add<float>(is_int8 ? Int8QueryLayout(kMostQueryHeads, kAttendedRange, head_size).floats
                               : kMostQueryHeads * kAttendedRange);
    together = own.add<float>(is_int8 ? 0 : TogetherLayout(head_size).floats);
    bytes = own.bytes();
  }
};

// The scratch that all threads share, for requests of up to `positions` positions.
struct SharedAttentionScratch {
  std::size_t most_parts;
  Piece<std::uint32_t> done;   // how many ranges of each pair are done
  Piece<std::uint32_t> taken;  // how many units of tokens threads have taken
  Piece<float> parts;          // the partial result of each range
  std::size_t bytes;

  DECODE_INLINE SharedAttentionScratch(std::size_t positions, std::size_t kv_heads,
                                       const PartialLayout& partial) {
    const std::size_t ranges = (positions - 1) / kAttendedRange + 1;
    most_parts = kv_heads * ranges;
    Pieces shared;
    done = shared.add<std::uint32_t>(kMostShared);
    taken = shared.add<std::uint32_t>(1);
    parts = shared.add<float>(kv_heads, ranges, partial.floats);
    bytes = shared.bytes();
  }
};

}  // namespace tensor_ops::decode
