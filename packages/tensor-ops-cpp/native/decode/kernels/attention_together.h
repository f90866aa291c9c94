// Attention of consecutive tokens of a request together, such as those of a prompt: what is kept of
// a position is converted once for all of them, and each vector that is loaded is multiplied by
// many of their query heads. Every head's numbers are those of attention_floats.h, to the last bit.
#pragma once

#include "decode/kernels/attention_floats.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// A tile of kTileHeads query heads is multiplied by kPieces pieces of 16 numbers at a time, whose
// sums fill the registers. The heads that are left over come in tiles of kRestHeads.
#if defined(__AVX512F__)
constexpr std::size_t kTileHeads = 12, kRestHeads = 4, kPieces = 2;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr std::size_t kTileHeads = 6, kRestHeads = 2, kPieces = 1;
#else
constexpr std::size_t kTileHeads = 3, kRestHeads = 1, kPieces = 1;
#endif
static_assert(decode::kMostTogether % kRestHeads == 0);

// Pieces of each of some heads, one behind the other.
template <std::size_t heads, std::size_t pieces>
struct TileSums {
  static constexpr std::size_t vectors = pieces * kBlockVectors;
  Floats of[heads][vectors] = {};

  TENSOR_OPS_INLINE void load(const float* from, std::size_t stride) {
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t v = 0; v < vectors; ++v)
        of[h][v] = load_vector<Floats>(from + h * stride + v * kLanes<float>);
  }
  TENSOR_OPS_INLINE void store(float* to, std::size_t stride) const {
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t v = 0; v < vectors; ++v)
        store_vector(to + h * stride + v * kLanes<float>, of[h][v]);
  }

  // Adds row k times factor k of each head, for every k from `begin` on. The pieces of a row are
  // `piece_stride` numbers apart.
  template <std::size_t head_stride, std::size_t factor_stride, std::size_t step>
  TENSOR_OPS_INLINE void add_rows(const float* rows, std::size_t piece_stride, const float* factors,
                                  std::size_t begin, std::size_t end) {
    for (std::size_t k = begin; k < end; k += step) {
      Floats row[vectors];
      for (std::size_t v = 0; v < vectors; ++v)
        row[v] = load_vector<Floats>(rows + k * kBlock + v / kBlockVectors * piece_stride +
                                     v % kBlockVectors * kLanes<float>);
      for (std::size_t h = 0; h < heads; ++h) {
        const Floats factor = broadcast(factors + h * head_stride + k * factor_stride);
        for (std::size_t v = 0; v < vectors; ++v) of[h][v] = fma(row[v], factor, of[h][v]);
      }
    }
  }
};

// The part of a range that a query of a token sees: positions from `begin` up to `end`, from the
// first one of the range's blocks.
struct SeenPart {
  std::size_t begin, end;
};

// Some tokens beside one range. Heads are numbered by token, then by head of the group; those that
// fill the last tile are zeros.
class TokensTogether {
 public:
  TENSOR_OPS_INLINE TokensTogether(const Sizes& sizes, std::size_t tokens, float* memory)
      : sizes_(sizes),
        layout_(sizes.head),
        memory_(memory),
        heads_(tokens * sizes.group()),
        all_heads_((heads_ + kRestHeads - 1) / kRestHeads * kRestHeads) {}

  // Takes heads that are prepared, one behind the other. Those that fill the last tile are zeros.
  void take_queries(const float* prepared) const {
    const std::size_t size = sizes_.head;
    for (std::size_t d = 0; d < size; d += decode::kQueryPart) {
      const std::size_t left = size - d;
      const std::size_t count = left < decode::kQueryPart ? left : decode::kQueryPart;
      for (std::size_t h = 0; h < all_heads_; ++h)
        if (h < heads_)
          __builtin_memcpy(queries(h, d), prepared + h * size + d, count * sizeof(float));
        else
          __builtin_memset(queries(h, d), 0, count * sizeof(float));
    }
  }

  // Converts the range: keys as a block has them, values in slices of 16 elements of all positions.
  template <class Element>
  void widen(const RangeBlocks& blocks) const {
    using T = typename Element::Storage;
    const std::size_t size = sizes_.head;
    for (std::size_t b = 0; b < blocks.count; ++b) {
      const CacheBlock<Element> block{blocks.block[b].at, kBlock, size};
      float* const keys = memory_ + layout_.keys + b * kBlock * size;
      for (std::size_t i = 0; i < kBlock * size; i += kLanes<float>)
        store<Float32>(keys + i, load<Element>(block.keys() + i, Whole<1>{}), Whole<1>{});
      for (std::size_t p = 0; p < kBlock; ++p) {
        const T* const from = block.values() + p * size;
        float* const to = memory_ + layout_.values + (b * kBlock + p) * kBlock;
        for (std::size_t d = 0; d < slice_floats(); d += kLanes<float>) {
          float* const at = to + d / kBlock * (decode::kAttendedRange * kBlock) + d % kBlock;
          if (d + kLanes<float> <= size)
            store<Float32>(at, load<Element>(from + d, Whole<1>{}), Whole<1>{});
          else if (d < size)
            store<Float32>(at, load<Element>(from + d, PartialVector{size - d}), Whole<1>{});
          else
            store_vector(at, Floats{});
        }
      }
    }
  }

  // Computes the results of a range that widen() has converted, and which has this many blocks;
  // parts[h] is what head h sees of it.
  void run(std::size_t num_blocks, const SeenPart* parts) const {
    for_pieces(num_blocks, [&](std::size_t block, auto count) TENSOR_OPS_INLINE_LAMBDA {
      score<count>(block);
      for (std::size_t b = 0; b < count; ++b) cap_scores(block + b, parts);
    });
    const std::size_t positions = num_blocks * kBlock;
    for (std::size_t h = 0; h < heads_; ++h) range_scores().find_largest(h, scores(h), positions);
    for (std::size_t h = 0; h < heads_; ++h) range_scores().replace(h, scores(h), positions);
    for_pieces(layout_.slices, [&](std::size_t slice, auto count)
                                   TENSOR_OPS_INLINE_LAMBDA { weigh_values<count>(slice, parts); });
  }

  // Adds the results of the last range to those of a head so far.
  TENSOR_OPS_INLINE void add_to(std::size_t head, bool is_first, float* values) const {
    attended(head, values)
        .add(is_first, results(head), memory_[layout_.largest + head], memory_[layout_.sums + head],
             sizes_.head);
  }
  TENSOR_OPS_INLINE void finish(std::size_t head, float* values, const float* sink) const {
    attended(head, values).finish(sizes_.head, sink);
  }

 private:
  TENSOR_OPS_INLINE AttendedHead attended(std::size_t head, float* values) const {
    return {values, memory_ + layout_.all_largest + head, memory_ + layout_.all_sums + head};
  }
  TENSOR_OPS_INLINE std::size_t slice_floats() const { return layout_.slices * kBlock; }
  // The elements of a head from the first one of a part on.
  TENSOR_OPS_INLINE float* queries(std::size_t head, std::size_t d) const {
    return memory_ + layout_.queries + d * decode::kMostTogether + head * decode::kQueryPart;
  }
  TENSOR_OPS_INLINE float* scores(std::size_t head) const {
    return memory_ + layout_.scores + head * decode::kAttendedRange;
  }
  TENSOR_OPS_INLINE float* results(std::size_t head) const {
    return memory_ + layout_.results + head * slice_floats();
  }
  TENSOR_OPS_INLINE RangeScores range_scores() const {
    return {sizes_, Partial(nullptr, memory_ + layout_.largest, memory_ + layout_.sums)};
  }

  // body(first head, their number as a constant) for tiles of heads.
  template <class Body>
  TENSOR_OPS_INLINE void for_tiles(Body body) const {
    std::size_t first = 0;
    for (; first + kTileHeads <= all_heads_; first += kTileHeads)
      body(first, std::integral_constant<std::size_t, kTileHeads>{});
    for (; first < all_heads_; first += kRestHeads)
      body(first, std::integral_constant<std::size_t, kRestHeads>{});
  }

  // body(first piece, their number as a constant)
  template <class Body>
  static TENSOR_OPS_INLINE void for_pieces(std::size_t all, Body body) {
    std::size_t piece = 0;
    for (; piece + kPieces <= all; piece += kPieces)
      body(piece, std::integral_constant<std::size_t, kPieces>{});
    for (; piece < all; ++piece) body(piece, std::integral_constant<std::size_t, 1>{});
  }

  // The scores of some blocks. Sums of even and of odd elements are separate.
  template <std::size_t pieces>
  void score(std::size_t block) const {
    const std::size_t size = sizes_.head, piece_stride = kBlock * size;
    const float* const keys = memory_ + layout_.keys + block * piece_stride;
    for_tiles([&](std::size_t first, auto count) TENSOR_OPS_INLINE_LAMBDA {
      float* const to = scores(first) + block * kBlock;
      TileSums<count, pieces> even, odd;
      const auto add = [&](auto& sums, std::size_t begin) TENSOR_OPS_INLINE_LAMBDA {
        for (std::size_t d = 0; d < size; d += decode::kQueryPart) {
          const std::size_t left = size - d;
          sums.template add_rows<decode::kQueryPart, 1, 2>(
              keys + d * kBlock, piece_stride, queries(first, d), begin,
              left < decode::kQueryPart ? left : decode::kQueryPart);
        }
      };
      add(even, 0);
      even.store(to, decode::kAttendedRange);
      add(odd, 1);
      even.load(to, decode::kAttendedRange);
      for (std::size_t h = 0; h < count; ++h)
        for (std::size_t v = 0; v < odd.vectors; ++v)
          odd.of[h][v] = (even.of[h][v] + odd.of[h][v]) * sizes_.scale;
      odd.store(to, decode::kAttendedRange);
    });
  }

  void cap_scores(std::size_t block, const SeenPart* parts) const {
    const std::size_t first = block * kBlock;
    for (std::size_t h = 0; h < heads_; ++h) {
      const SeenPart& part = parts[h];
      const std::size_t begin = part.begin > first ? part.begin - first : 0;
      const std::size_t end = part.end > first ? part.end - first : 0;
      range_scores().cap_scores(scores(h) + first, begin, end < kBlock ? end : kBlock);
    }
  }

  // Some slices of the results: the values of all positions in order, each times its weight.
  // Positions that not all heads of a tile see come first and last.
  template <std::size_t pieces>
  void weigh_values(std::size_t slice, const SeenPart* parts) const {
    constexpr std::size_t piece_stride = decode::kAttendedRange * kBlock;
    const float* const values = memory_ + layout_.values + slice * piece_stride;
    for_tiles([&](std::size_t first, auto count) TENSOR_OPS_INLINE_LAMBDA {
      float* const to = results(first) + slice * kBlock;
      const std::size_t real = heads_ - first < count ? heads_ - first : count;
      SeenPart all = parts[first];
      for (std::size_t h = first + 1; h < first + real; ++h) {
        all.begin = parts[h].begin > all.begin ? parts[h].begin : all.begin;
        all.end = parts[h].end < all.end ? parts[h].end : all.end;
      }
      all.end = all.end > all.begin ? all.end : all.begin;
      bool is_begun = false;
      const auto add_of_one = [&](std::size_t h, std::size_t begin, std::size_t end) {
        if (begin >= end) return;
        TileSums<1, pieces> sums;
        float* const at = to + h * slice_floats();
        sums.load(at, 0);
        sums.template add_rows<0, 1, 1>(values, piece_stride, scores(first + h), begin, end);
        sums.store(at, 0);
      };
      TileSums<count, pieces> sums;
      for (std::size_t h = 0; h < real; ++h) {
        const SeenPart& part = parts[first + h];
        if (part.begin >= all.begin) continue;
        if (!is_begun) sums.store(to, slice_floats());
        is_begun = true;
        add_of_one(h, part.begin, part.end < all.begin ? part.end : all.begin);
      }
      if (is_begun) sums.load(to, slice_floats());
      sums.template add_rows<decode::kAttendedRange, 1, 1>(values, piece_stride, scores(first),
                                                           all.begin, all.end);
      sums.store(to, slice_floats());
      for (std::size_t h = 0; h < real; ++h) {
        const SeenPart& part = parts[first + h];
        add_of_one(h, part.begin > all.end ? part.begin : all.end, part.end);
      }
    });
  }

  const Sizes& sizes_;
  const decode::TogetherLayout layout_;
  float* const memory_;
  const std::size_t heads_, all_heads_;
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
