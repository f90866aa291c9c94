// How the rows of a file become tiles, and values.
#pragma once

#include <cstdint>
#include <cstring>

#include "decode/products/product.h"
#include "decode/products/tile.h"

namespace tensor_ops {

// Enters a format of static storage duration into weight_formats().
struct WeightFormatRegistration {
  explicit WeightFormatRegistration(const WeightFormat& format);
};

inline float load_float(const unsigned char* from) {
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline float load_bfloat16(const unsigned char* from) {
  const std::uint32_t bits = std::uint32_t{from[1]} << 24 | std::uint32_t{from[0]} << 16;
  return load_float(reinterpret_cast<const unsigned char*>(&bits));
}

inline float load_half(const unsigned char* from) {
  const std::uint32_t half = std::uint32_t{from[1]} << 8 | from[0];
  const std::uint32_t magnitude = half & 0x7FFF, sign = (half & 0x8000) << 16;
  const bool finite = magnitude < 0x7C00;
  const std::uint32_t bits = sign | magnitude << 13 | (finite ? 0 : 0x7F800000);
  // The bias of the exponent is 112 less than float32's. The product is exact.
  return load_float(reinterpret_cast<const unsigned char*>(&bits)) * (finite ? 0x1p112f : 1.0f);
}

// A row of numbers of `size` bytes.
template <std::size_t size, float (*load)(const unsigned char*)>
void dequantize_numbers(const unsigned char* row, std::size_t columns, float* values) {
  for (std::size_t k = 0; k < columns; ++k) values[k] = load(row + k * size);
}

constexpr std::size_t number_tile_columns(std::size_t columns) { return (columns + 3) / 4 * 4; }

// Tiles of numbers have a multiple of four columns, the last ones zero.
template <std::size_t size>
std::size_t number_tile_bytes(std::size_t columns) {
  return number_tile_columns(columns) * kTileRows * size;
}

// Numbers of `size` bytes, column after column; a row's `together` columns are neighbours.
template <std::size_t size, std::size_t together = 1>
void pack_numbers(const unsigned char* const* rows, std::size_t columns, unsigned char* tile) {
  constexpr std::size_t word = size * together;
  const bool is_full = rows[kTileRows - 1] && number_tile_columns(columns) == columns;
  if (!is_full) std::memset(tile, 0, number_tile_bytes<size>(columns));
  for (std::size_t k = 0; k < columns / together; ++k)
    for (std::size_t r = 0; r < kTileRows; ++r)
      if (rows[r]) std::memcpy(tile + (k * kTileRows + r) * word, rows[r] + k * word, word);
  for (std::size_t k = columns / together * together; k < columns; ++k)
    for (std::size_t r = 0; r < kTileRows; ++r)
      if (rows[r])
        std::memcpy(tile + k / together * kTileRows * word + r * word + k % together * size,
                    rows[r] + k * size, size);
}

// The integers of four columns, a byte for each in the order of memory. Masks and shifts within
// bytes do not depend on the order of bytes in a word.
using FourColumns = std::uint32_t;

inline FourColumns load_four(const unsigned char* from) {
  FourColumns four;
  std::memcpy(&four, from, sizeof four);
  return four;
}

constexpr FourColumns kLowHalves = 0x0F0F0F0F, kLowTwoBits = 0x03030303, kLowBits = 0x01010101;

// A row of one block of a tile, which is filled with zeros at first.
class BlockRow {
 public:
  BlockRow(unsigned char* halves, unsigned char* lines, std::size_t row)
      : halves_(halves + 2 * row), lines_(lines + 4 * row) {}
  void set_half(std::size_t index, const unsigned char* half) const {
    std::memcpy(halves_ + index * kLineBytes / 2, half, 2);
  }
  void set_word(std::size_t line, FourColumns four) const {
    std::memcpy(lines_ + line * kLineBytes, &four, sizeof four);
  }
  // The lower four bits of 32 columns, in four lines, as TileBlock::nibbles() reads them.
  void set_nibbles(std::size_t line, const FourColumns* q) const {
    for (std::size_t i = 0; i < 4; ++i)
      set_word(line + i, (q[i] & kLowHalves) | (q[4 + i] & kLowHalves) << 4);
  }
  // Bits 4 and above of 32 columns, `bits` of each, as TileBlock::high() reads them.
  template <std::size_t bits>
  void set_high(std::size_t line, const FourColumns* q) const {
    constexpr std::size_t together = 8 / bits;  // words to a line
    constexpr FourColumns mask = bits == 1 ? kLowBits : kLowTwoBits;
    for (std::size_t i = 0; i < 8 / together; ++i) {
      FourColumns packed = 0;
      for (std::size_t t = 0; t < together; ++t)
        packed |= (q[i * together + t] >> 4 & mask) << t * bits;
      set_word(line + i, packed);
    }
  }

 private:
  unsigned char *halves_, *lines_;
};

// Packs rows of blocks of a file, each by pack_block(bytes in the file, row of the tile's block),
// where a block is `together` blocks of 32 columns.
template <class Tile, std::size_t block_bytes, void (*pack_block)(const unsigned char*, BlockRow),
          std::size_t together = 1>
void pack_blocks(const unsigned char* const* rows, std::size_t columns, unsigned char* tile) {
  // No row sets the second halves of heads, nor the lines of rows past the end.
  std::memset(tile, 0, Tile::bytes(columns));
  for (std::size_t b = 0; b < columns / kBlockColumns / together; ++b)
    for (std::size_t r = 0; r < kTileRows; ++r)
      if (rows[r])
        pack_block(rows[r] + b * block_bytes,
                   {tile + Tile::halves_at(b * together), tile + Tile::lines_at(b * together), r});
}

// Bit i of four becomes the lowest of column i.
inline FourColumns spread(FourColumns bits) {
  const FourColumns four = bits * 0x00204081 & kLowBits;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return __builtin_bswap32(four);
#else
  return four;
#endif
}

constexpr std::size_t kFours = kBlockColumns / 4;  // of a block

inline int integer(const FourColumns* q, std::size_t column) {
  return reinterpret_cast<const unsigned char*>(q)[column];
}

constexpr std::size_t kSuperColumns = 256;

// The integers of 32 columns of q4_K and q5_K, of 6 bits each. The upper two bits of the last four
// blocks' integers are in the bytes of the first four blocks'.
struct ScaleAndMinimum {
  unsigned char scale, minimum;

  ScaleAndMinimum(const unsigned char* block, std::size_t b) {
    const unsigned char* packed = block + 4 + b % 4;
    const int last = packed[8];
    scale =
        static_cast<unsigned char>(b < 4 ? packed[0] & 63 : (last & 15) | (packed[0] >> 6 << 4));
    minimum = static_cast<unsigned char>(b < 4 ? packed[4] & 63 : last >> 4 | packed[4] >> 6 << 4);
  }
};

template <class Tile>
void pack_scales_and_minimums(const unsigned char* block, BlockRow row) {
  row.set_half(0, block);
  row.set_half(1, block + 2);
  for (std::size_t b = 0; b < Tile::kBlocks; ++b) {
    const ScaleAndMinimum integers(block, b);
    const unsigned char pair[] = {integers.scale, integers.minimum};
    row.set_half(Tile::kPairs + b, pair);
  }
}

template <std::size_t block_bytes, void (*unpack)(const unsigned char*, FourColumns*)>
void dequantize_super_blocks(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kSuperColumns, row += block_bytes) {
    FourColumns q[kSuperColumns / 4];
    unpack(row, q);
    const float d = load_half(row), e = load_half(row + 2);
    for (std::size_t k = 0; k < kSuperColumns; ++k) {
      const ScaleAndMinimum integers(row, k / kBlockColumns);
      *values++ = d * static_cast<float>(integers.scale) * static_cast<float>(integer(q, k)) -
                  e * static_cast<float>(integers.minimum);
    }
  }
}

}  // namespace tensor_ops
