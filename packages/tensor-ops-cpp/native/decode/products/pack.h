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

using FourWords = std::uint32_t __attribute__((vector_size(16)));
using EightHalves = std::uint16_t __attribute__((vector_size(16)));

// Stores word i of four rows at to[i].
inline void transpose_four(const FourWords (&row)[4], FourWords (&to)[4]) {
  const FourWords low_ab = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
                  high_ab = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7),
                  low_cd = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5),
                  high_cd = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  to[0] = __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5);
  to[1] = __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7);
  to[2] = __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5);
  to[3] = __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7);
}

// Words of 4 bytes of four rows, from an offset of each on: word i of row r is words[i][r].
template <std::size_t count>
inline void load_words(const unsigned char* const* rows, std::size_t offset,
                       FourWords (&words)[count]) {
  static_assert(count % 4 == 0, "words are transposed four by four");
  for (std::size_t i = 0; i < count; i += 4) {
    FourWords row[4], columns[4];
    for (std::size_t r = 0; r < 4; ++r) std::memcpy(&row[r], rows[r] + offset + 4 * i, sizeof *row);
    transpose_four(row, columns);
    std::memcpy(words + i, columns, sizeof columns);
  }
}

// Prefetches what is read after some bytes of a row of a file: the same bytes of the next tile,
// whose rows follow those of this one, or, of a long row, bytes that lie shortly behind.
class RowPrefetch {
 public:
  explicit RowPrefetch(std::size_t row_bytes)
      : ahead_(row_bytes <= kLongRow ? kTileRows * row_bytes : kBehind) {}
  void operator()(const unsigned char* bytes, std::size_t count) const {
    for (std::size_t i = 0; i < count; i += kLineBytes) __builtin_prefetch(bytes + ahead_ + i);
  }

 private:
  static constexpr std::size_t kLongRow = 4096, kBehind = 1024;
  const std::size_t ahead_;
};

// A line of each row at a time, since 16 rows may lie where the cache has no room for so many
// lines.
template <std::size_t size, std::size_t together>
void pack_full_tile(const unsigned char* const* rows, std::size_t columns, unsigned char* tile) {
  constexpr std::size_t count = kLineBytes / 4;
  const RowPrefetch prefetch(columns * size);
  for (std::size_t at = 0; at < columns * size; at += kLineBytes, tile += count * kLineBytes)
    for (std::size_t r = 0; r < kTileRows; r += 4) {
      for (std::size_t i = 0; i < 4; ++i) prefetch(rows[r + i] + at, kLineBytes);
      FourWords words[count];
      load_words(rows + r, at, words);
      for (std::size_t i = 0; i < count; ++i) {
        if constexpr (size * together == 4) {
          std::memcpy(tile + i * kLineBytes + 4 * r, &words[i], sizeof *words);
        } else {  // a word has two columns of a row, which become two half lines
          EightHalves pairs;
          std::memcpy(&pairs, &words[i], sizeof pairs);
          pairs = __builtin_shufflevector(pairs, pairs, 0, 2, 4, 6, 1, 3, 5, 7);
          unsigned char* const halves = tile + i * kLineBytes + 2 * r;
          std::memcpy(halves, &pairs, 8);
          std::memcpy(halves + kLineBytes / 2, reinterpret_cast<const char*>(&pairs) + 8, 8);
        }
      }
    }
}

// Numbers of `size` bytes, column after column; a row's `together` columns are neighbours.
template <std::size_t size, std::size_t together = 1>
void pack_numbers(const unsigned char* const* rows, std::size_t columns, unsigned char* tile) {
  constexpr std::size_t word = size * together;
  if (rows[kTileRows - 1] && columns * size % kLineBytes == 0) {
    pack_full_tile<size, together>(rows, columns, tile);
    return;
  }
  std::memset(tile, 0, number_tile_bytes<size>(columns));
  for (std::size_t k = 0; k < columns; ++k)
    for (std::size_t r = 0; r < kTileRows; ++r)
      if (rows[r])
        std::memcpy(tile + (k / together * kTileRows + r) * word + k % together * size,
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

constexpr std::size_t kFours = kBlockColumns / 4;  // of a block

// The half-precision numbers of a block of one row, and the pairs of bytes among them.
class BlockHalves {
 public:
  explicit BlockHalves(unsigned char* halves) : halves_(halves) {}
  void set(std::size_t index, const unsigned char* half) const {
    std::memcpy(halves_ + 2 * index, half, 2);
  }

 private:
  unsigned char* halves_;
};

// Packs integers of `bits` bits of 32 columns of four rows into lines, of which it writes the words
// of these rows.
template <std::size_t bits>
void pack_words(const FourWords (&q)[kFours], unsigned char* lines) {
  const auto store = [lines](std::size_t line, FourWords words) {
    std::memcpy(lines + line * kLineBytes, &words, sizeof words);
  };
  if constexpr (bits == 8) {
    for (std::size_t i = 0; i < kFours; ++i) store(i, q[i]);
    return;
  }
  // The lower four bits, as TileBlock::nibbles() reads them.
  for (std::size_t i = 0; i < 4; ++i) store(i, (q[i] & kLowHalves) | (q[4 + i] & kLowHalves) << 4);
  // The bits above, as TileBlock::high() reads them.
  if constexpr (bits > 4) {
    constexpr std::size_t high = bits - 4, together = 8 / high;  // words to a line
    constexpr FourColumns mask = high == 1 ? kLowBits : kLowTwoBits;
    for (std::size_t i = 0; i < kFours / together; ++i) {
      FourWords packed = {};
      for (std::size_t t = 0; t < together; ++t)
        packed |= (q[i * together + t] >> 4 & mask) << static_cast<FourColumns>(t * high);
      store(4 + i, packed);
    }
  }
}

// Packs rows of blocks of a file, where a block is `together` blocks of 32 columns. unpack() gives
// the integers of a block, set_halves() the rest of it.
template <class Tile, std::size_t bits, std::size_t block_bytes,
          void (*unpack)(const unsigned char*, FourColumns*),
          void (*set_halves)(const unsigned char*, BlockHalves), std::size_t together = 1>
void pack_blocks(const unsigned char* const* rows, std::size_t columns, unsigned char* tile) {
  // What no row sets stays zero: the second halves of some heads, and rows past the end.
  unsigned char halves[kTileRows][2 * Tile::kHalves] = {};
  alignas(16) FourColumns integers[kTileRows][together * kFours] = {};
  const unsigned char* row_integers[kTileRows];
  for (std::size_t r = 0; r < kTileRows; ++r)
    row_integers[r] = reinterpret_cast<const unsigned char*>(integers[r]);
  const std::size_t blocks = columns / kBlockColumns;
  const RowPrefetch prefetch(blocks / together * block_bytes);
  for (std::size_t b = 0; b < blocks; b += together) {
    for (std::size_t r = 0; r < kTileRows; ++r)
      if (rows[r]) {
        const unsigned char* const block = rows[r] + b / together * block_bytes;
        prefetch(block, block_bytes);
        unpack(block, integers[r]);
        set_halves(block, BlockHalves(halves[r]));
      }
    for (std::size_t i = 0; i < together; ++i)
      for (std::size_t r = 0; r < kTileRows; r += 4) {
        FourWords q[kFours];
        load_words(row_integers + r, i * kBlockColumns, q);
        pack_words<bits>(q, tile + Tile::lines_at(b + i) + 4 * r);
      }
    unsigned char* const head = tile + Tile::halves_at(b);
    for (std::size_t h = 0; h < Tile::kHalves; ++h)
      for (std::size_t r = 0; r < kTileRows; ++r)
        std::memcpy(head + h * kLineBytes / 2 + 2 * r, halves[r] + 2 * h, 2);
  }
  // The half of a line that belongs to a block behind the last one.
  if (Tile::kHalfBytes % kLineBytes != 0 && blocks % 2 != 0)
    std::memset(tile + Tile::halves_at(blocks), 0, Tile::kHalfBytes);
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
void set_scales_and_minimums(const unsigned char* block, BlockHalves halves) {
  halves.set(0, block);
  halves.set(1, block + 2);
  for (std::size_t b = 0; b < Tile::kBlocks; ++b) {
    const ScaleAndMinimum integers(block, b);
    const unsigned char pair[] = {integers.scale, integers.minimum};
    halves.set(Tile::kPairs + b, pair);
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
