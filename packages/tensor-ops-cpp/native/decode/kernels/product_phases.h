// The two phases of a node that ends in products with packed matrices: rows are prepared, by each
// thread for itself where there are few, then each thread multiplies them by its own tiles.
#pragma once

#include "decode/executor/product_scratch.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Prefetches 4 KB of a matrix that is multiplied next, its first bytes or a later part. The
// processor's own prefetcher follows streams, but cannot know where the next one begins.
TENSOR_OPS_INLINE void prefetch_start(const decode::TileRun& run, std::size_t part = 0) {
  constexpr std::size_t kBytes = 4096, kLine = 64;
  for (std::size_t i = 0; i < kBytes; i += kLine)
    __builtin_prefetch(run.tiles + part * kBytes + i, 0, 2);
}

// Packs tiles of which not all are packed, at most two, into scratch.
inline const unsigned char* pack_tiles(const decode::TileRun& run, std::size_t tile,
                                       std::size_t count, std::size_t columns,
                                       unsigned char* packed) {
  for (std::size_t i = 0; i < count; ++i) {
    unsigned char* const to = packed + i * run.tile_bytes;
    if (tile + i < run.num_packed)
      __builtin_memcpy(to, run.tiles + (tile + i) * run.tile_bytes, run.tile_bytes);
    else
      run.pack_tile(tile + i, columns, to);
  }
  return packed;
}

// Where `count` tiles from `tile` on are packed, one behind the other.
TENSOR_OPS_INLINE const unsigned char* packed_tiles(const decode::TileRun& run, std::size_t tile,
                                                    std::size_t count, std::size_t columns,
                                                    unsigned char* scratch) {
  if (tile + count <= run.num_packed) return run.tiles + tile * run.tile_bytes;
  return pack_tiles(run, tile, count, columns, scratch);
}

// How many of the tiles from `tile` to `end` are multiplied together: all that are packed, or two.
TENSOR_OPS_INLINE std::size_t tiles_together(const decode::TileRun& run, std::size_t tile,
                                             std::size_t end) {
  const std::size_t packed = run.num_packed < end ? run.num_packed : end;
  return tile + 1 < packed ? packed - tile : 2;
}

// Prepares the activations of one of `tokens` tokens in all kinds that a node wants.
TENSOR_OPS_INLINE void prepare_token(const decode::Share& share, const float* row,
                                     unsigned char* prepared, std::size_t token,
                                     std::size_t tokens) {
  for (std::size_t k = 0; k < share.num_prepared; ++k) {
    const decode::PreparedKind& kind = share.prepared[k];
    kind.kernel->for_tokens(tokens).prepare(
        row, share.product_columns, prepared + tokens * kind.offset, kind.bytes, token, tokens);
  }
}

// The identity: a kind of product that changes nothing in its sums before biases are added.
template <std::size_t bias_slot>
struct Sums {
  static constexpr std::size_t bias = bias_slot;
  static constexpr bool are_results = true;
  static TENSOR_OPS_INLINE float result(const decode::Share&, float sum) { return sum; }
};

// Product: as Sums.
template <class Product>
class ProductPhases {
  static void prepare(const decode::Share& share) {
    const bool is_few = share.rows <= decode::kFewRows;
    const std::size_t begin = is_few ? 0 : share.begin_of(share.rows);
    const std::size_t end = is_few ? share.rows : share.end_of(share.rows);
    const decode::ProductScratch scratch = scratch_of(share);
    unsigned char* const prepared = prepared_rows(share, scratch);
    if (share.num_runs > 0) prefetch_start(share.runs[0]);
    for (std::size_t r = begin; r < end; ++r) {
      const float* const row = source_row(share, r, scratch.row.in(share.own));
      prepare_token(share, row, prepared, r, share.rows);
    }
  }

  static TENSOR_OPS_INLINE const float* source_row(const decode::Share& share, std::size_t r,
                                                   float* scratch) {
    if (!share.before) return share.in(0) + r * share.input_columns[0];
    share.row_before(*share.before, r, scratch);
    return scratch;
  }

  // A thread multiplies its own tiles, which may be those of several shares, then tiles that are
  // left of other threads, so that none waits long for a slow thread.
  static void multiply(const decode::Share& share) {
    const decode::ProductScratch scratch = scratch_of(share);
    for (std::size_t i = 0; i < share.threads; ++i) {
      const std::size_t owner = (share.thread + i) % share.threads;
      const decode::Share& of = share.of_threads[owner];
      for (;;) {
        const bool is_owner = i < share.num_own;
        const auto tiles = share.claims[owner].take(share.step->number, of.num_tiles, is_owner,
                                                    share.rows >= kManyTokens ? 2 : 1);
        if (tiles.begin == tiles.end) break;
        multiply_tiles(share, scratch, of, tiles);
      }
    }
  }

  static void multiply_tiles(const decode::Share& share, const decode::ProductScratch& scratch,
                             const decode::Share& of, decode::TileClaims::Tiles tiles) {
    std::size_t first = 0;  // tile of a run
    for (std::size_t i = 0; i < of.num_runs; ++i) {
      const decode::TileRun& run = of.runs[i];
      const std::size_t behind = first + (run.rows + kTileRows - 1) / kTileRows;
      const std::size_t end = tiles.end < behind ? tiles.end : behind;
      std::size_t t = tiles.begin > first ? tiles.begin : first;
      if (run.kernel->for_tokens(share.rows).multiplies_tiles(share.rows)) {
        const std::size_t behind_whole = first + run.rows / kTileRows;
        const std::size_t whole = end < behind_whole ? end : behind_whole;
        if (t < whole) t += multiply_whole_tiles(share, scratch, run, t - first, whole - first);
      }
      for (; t < end; ++t) multiply_tile(share, scratch, run, t - first);
      first = behind;
    }
  }
  // Returns how many it multiplied: all that are packed, and others by two.
  static std::size_t multiply_whole_tiles(const decode::Share& share,
                                          const decode::ProductScratch& scratch,
                                          const decode::TileRun& run, std::size_t begin,
                                          std::size_t end) {
    std::size_t tile = begin;
    while (tile + 1 < end) {
      const std::size_t count = tiles_together(run, tile, end);
      const std::size_t column = run.first + tile * kTileRows;
      float* const out = share.out() + column;
      run.kernel->for_tokens(share.rows)
          .multiply_tiles(
              packed_tiles(run, tile, count, share.product_columns, scratch.tiles.in(share.own)),
              run.tile_bytes, count, share.product_columns,
              prepared_rows(share, scratch) + share.rows * run.prepared_offset, run.prepared_bytes,
              share.rows, scratch.results.in(share.own), out, share.columns);
      finish(share, out, share.columns, column, count * kTileRows);
      tile += count;
    }
    return tile - begin;
  }
  static TENSOR_OPS_INLINE void multiply_tile(const decode::Share& share,
                                              const decode::ProductScratch& scratch,
                                              const decode::TileRun& run, std::size_t tile) {
    float* const part = scratch.results.in(share.own);
    const std::size_t column = run.first + tile * kTileRows;
    const std::size_t left = run.rows - tile * kTileRows;
    const bool is_whole = left >= kTileRows;
    float* const out = is_whole ? share.out() + column : part;
    const std::size_t stride = is_whole ? share.columns : kTileRows;
    run.kernel->for_tokens(share.rows)
        .multiply(packed_tiles(run, tile, 1, share.product_columns, scratch.tiles.in(share.own)),
                  share.product_columns,
                  prepared_rows(share, scratch) + share.rows * run.prepared_offset,
                  run.prepared_bytes, share.rows, out, stride);
    finish(share, out, stride, column, is_whole ? kTileRows : left);
  }

  static TENSOR_OPS_INLINE decode::ProductScratch scratch_of(const decode::Share& share) {
    return {share.product_columns, share.prepared_bytes, share.tile_bytes, share.rows};
  }
  static TENSOR_OPS_INLINE unsigned char* prepared_rows(const decode::Share& share,
                                                        const decode::ProductScratch& scratch) {
    return share.rows <= decode::kFewRows ? scratch.few_prepared.in(share.own)
                                          : scratch.prepared.in(share.shared);
  }

  // Adds biases and the residual, and moves the rows of a tile that is not whole to the output.
  static TENSOR_OPS_INLINE void finish(const decode::Share& share, const float* products,
                                       std::size_t stride, std::size_t column, std::size_t lanes) {
    const float* const bias = share.parameters[Product::bias];
    const float* const residual = share.residual;
    float* const out = share.out() + column;
    if (Product::are_results && !bias && !residual && products == out) return;
    for (std::size_t r = 0; r < share.rows; ++r)
      for (std::size_t l = 0; l < lanes; ++l) {
        float value = Product::result(share, products[r * stride + l]);
        if (bias) value += bias[column + l];
        if (residual) value += residual[r * share.columns + column + l];
        out[r * share.columns + l] = value;
      }
  }

 public:
  static constexpr decode::NodeKernels kernels{prepare, multiply, false};
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
