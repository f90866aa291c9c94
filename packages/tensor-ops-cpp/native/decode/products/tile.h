// Where things lie in a tile of a block format. A line is 64 bytes: for each of the 16 rows 4
// bytes, or 2 of a half-precision number. Nothing here depends on the instruction-set level.
#pragma once

#include <cstddef>

#include "decode/products/product.h"

namespace tensor_ops {
namespace {

// To be raised when the tiles of a format change, since packed weights are kept in files.
constexpr int kTileLayout = 1;

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kBlockColumns = 32;

// Blocks of 32 columns: `halves` half-precision numbers of each row, and `lines` lines. Where the
// numbers of a block take half a line, those of two blocks share one, so that lines stay aligned.
template <std::size_t halves, std::size_t lines>
struct BlockTile {
  static constexpr std::size_t kHalves = halves, kLines = lines;
  static constexpr std::size_t kHalfBytes = halves * kLineBytes / 2;  // of a block
  static constexpr std::size_t kShared = kHalfBytes % kLineBytes ? 2 : 1;
  static constexpr std::size_t kHeadBytes = kShared * kHalfBytes;

  static constexpr std::size_t halves_at(std::size_t block) {
    return block / kShared * (kHeadBytes + kShared * lines * kLineBytes) +
           block % kShared * kHalfBytes;
  }
  static constexpr std::size_t lines_at(std::size_t block) {
    return block / kShared * (kHeadBytes + kShared * lines * kLineBytes) + kHeadBytes +
           block % kShared * lines * kLineBytes;
  }
  static std::size_t bytes(std::size_t columns) {
    const std::size_t blocks = columns / kBlockColumns;
    return blocks ? lines_at(blocks - 1) + lines * kLineBytes : 0;
  }
};

// The K formats: 8 blocks of 32 columns, with `lines` lines each, share two half-precision numbers.
// After those, still in halves of lines, is a pair of bytes of each block for each row. A format
// with one number leaves the second half line empty, so that lines stay aligned.
template <std::size_t lines>
struct SuperBlockTile {
  static constexpr std::size_t kHalves = 10, kLines = lines, kBlocks = 8;
  static constexpr std::size_t kPairs = 2;  // the first half line of pairs
  static constexpr std::size_t kHalfBytes = kHalves * kLineBytes / 2, kHeadBytes = kHalfBytes;
  static constexpr std::size_t kBytes = kHeadBytes + kBlocks * lines * kLineBytes;

  static constexpr std::size_t halves_at(std::size_t block) { return block / kBlocks * kBytes; }
  static constexpr std::size_t lines_at(std::size_t block) {
    return halves_at(block) + kHeadBytes + block % kBlocks * lines * kLineBytes;
  }
  static std::size_t bytes(std::size_t columns) {
    return columns / kBlockColumns / kBlocks * kBytes;
  }
};

constexpr std::size_t number_tile_columns(std::size_t columns) { return (columns + 3) / 4 * 4; }

// Tiles of numbers have a multiple of four columns, the last ones zero.
template <std::size_t size>
std::size_t number_tile_bytes(std::size_t columns) {
  return number_tile_columns(columns) * kTileRows * size;
}

}  // namespace
}  // namespace tensor_ops
