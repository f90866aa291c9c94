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
  // The exponent's bias is 112 less; the product is exact.
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
  std::memset(tile, 0, number_tile_bytes<size>(columns));
  for (std::size_t k = 0; k < columns; ++k)
    for (std::size_t r = 0; r < kTileRows; ++r)
      if (rows[r])
        std::memcpy(tile + ((k / together * kTileRows + r) * together + k % together) * size,
                    rows[r] + k * size, size);
}

// A row of one block of a tile, which is filled with zeros at first.
class BlockRow {
 public:
  BlockRow(unsigned char* halves, unsigned char* lines, std::size_t row)
      : halves_(halves + 2 * row), lines_(lines + 4 * row) {}
  void set_half(std::size_t index, const unsigned char* half) const {
    std::memcpy(halves_ + index * kLineBytes / 2, half, 2);
  }
  void set_word(std::size_t line, const unsigned char* bytes) const {
    std::memcpy(lines_ + line * kLineBytes, bytes, 4);
  }

 private:
  unsigned char *halves_, *lines_;
};

// Packs rows of blocks of 32 columns, each by pack_block(bytes in the file, row of the tile's
// block).
template <class Tile, std::size_t block_bytes, void (*pack_block)(const unsigned char*, BlockRow)>
void pack_blocks(const unsigned char* const* rows, std::size_t columns, unsigned char* tile) {
  std::memset(tile, 0, Tile::bytes(columns));
  for (std::size_t b = 0; b < columns / kBlockColumns; ++b)
    for (std::size_t r = 0; r < kTileRows; ++r)
      if (rows[r])
        pack_block(rows[r] + b * block_bytes,
                   {tile + Tile::halves_at(b), tile + Tile::lines_at(b), r});
}

}  // namespace tensor_ops
