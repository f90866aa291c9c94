// The tiles of products with a stack of matrices, which are all of one size: the threads divide
// those of each matrix.
#pragma once

#include "decode/kernels/product_phases.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// In how many parts the start of a matrix is prefetched, one beside each of so many tiles.
constexpr std::size_t kStartParts = 2;

// Multiplies some of the tiles that a thread has of a matrix, whose runs are given.
// multiply(run, tile, end) returns how many tiles of a run, from `tile` on, it has multiplied.
template <class Multiply>
TENSOR_OPS_INLINE void multiply_runs(const decode::TileRun* runs, std::size_t count,
                                     std::size_t begin, std::size_t end, Multiply multiply) {
  for (std::size_t i = 0, first = 0; i < count && first < end; ++i) {
    const std::size_t tiles = (runs[i].rows + kTileRows - 1) / kTileRows;
    std::size_t t = begin > first ? begin - first : 0;
    const std::size_t behind = end - first < tiles ? end - first : tiles;
    while (t < behind) t += multiply(runs[i], t, behind);
    first += tiles;
  }
}

// Multiplies a thread's own tiles of `count` matrices, then tiles that are left of others. Matrix i
// of these is number_of(i) in the stack; multiply(i, run, tile, end) does the work, as above.
// Threads take `together` tiles at a time, and prefetch the first tiles of the next matrix beside
// the last ones of a matrix.
template <class NumberOf, class Multiply>
TENSOR_OPS_INLINE void multiply_stack(const decode::Share& share, std::size_t count,
                                      std::size_t together, NumberOf number_of, Multiply multiply) {
  for (std::size_t i = 0; i < share.threads; ++i) {
    const std::size_t owner = (share.thread + i) % share.threads;
    const decode::Share& of = share.of_threads[owner];
    for (;;) {
      const auto tiles = share.claims[owner].take(share.step->number, count * of.num_tiles,
                                                  i < share.num_own, together);
      if (tiles.begin == tiles.end) break;
      for (std::size_t t = tiles.begin; t < tiles.end;) {
        const std::size_t matrix = t / of.num_tiles, first = matrix * of.num_tiles;
        const std::size_t behind = first + of.num_tiles;
        const std::size_t end = tiles.end < behind ? tiles.end : behind;
        const decode::TileRun* const runs = of.runs + number_of(matrix) * of.num_runs;
        const bool continues = end == behind && matrix + 1 < count;
        multiply_runs(runs, of.num_runs, t - first, end - first,
                      [&](const decode::TileRun& run, std::size_t tile, std::size_t tile_end) {
                        const std::size_t left = tile_end - tile;
                        const bool is_last = &run + 1 == runs + of.num_runs;
                        if (continues && is_last && left <= kStartParts)
                          prefetch_start(of.runs[number_of(matrix + 1) * of.num_runs],
                                         kStartParts - left);
                        return multiply(matrix, run, tile, tile_end);
                      });
        t = end;
      }
    }
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
