// Where things lie in a tile of a block format. A line is 64 bytes: for each of the 16 rows 4
// bytes, or 2 of a half-precision number, or a byte in a fourth of it. Nothing here depends on the
// instruction-set level.
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

// 8 blocks of 32 columns, with `lines` lines each, share two half-precision numbers. Those of the K
// formats are followed, still in halves of lines, by a pair of bytes of each block for each row. A
// format with one number leaves the second half line empty, so that lines stay aligned.
template <std::size_t lines, bool has_pairs = true>
struct SuperBlockTile {
  static constexpr std::size_t kHalves = has_pairs ? 10 : 2, kLines = lines, kBlocks = 8,
                               kShared = 1;
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

// Blocks of 32 columns whose weights are codes, of as many bits as they have lines. `group` blocks
// share a head: `scales` bytes of each row for each block and, where these multiply a unit, a line
// with that of each row as float32. A tile with units begins with a line that says what codes mean.
template <std::size_t lines, std::size_t group, std::size_t scales, bool has_unit>
struct CodeTile {
  static constexpr std::size_t kLines = lines, kBlocks = group, kShared = group, kScales = scales;
  static constexpr std::size_t kHalfBytes = scales * kTileRows;  // of a block
  static constexpr std::size_t kHeadBytes = group * kHalfBytes + has_unit * kLineBytes;
  static constexpr std::size_t kBytes = kHeadBytes + group * kLines * kLineBytes;
  static_assert(kHeadBytes % kLineBytes == 0);

  static constexpr std::size_t head_at(std::size_t block) {
    return has_unit * kLineBytes + block / group * kBytes;
  }
  static constexpr std::size_t halves_at(std::size_t block) {
    return head_at(block) + block % group * kHalfBytes;
  }
  static constexpr std::size_t unit_at(std::size_t block) {
    return head_at(block) + group * kHalfBytes;
  }
  static constexpr std::size_t lines_at(std::size_t block) {
    return head_at(block) + kHeadBytes + block % group * kLines * kLineBytes;
  }
  static std::size_t bytes(std::size_t columns) {
    const std::size_t blocks = columns / kBlockColumns;
    return blocks ? lines_at(blocks - 1) + kLines * kLineBytes : 0;
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
