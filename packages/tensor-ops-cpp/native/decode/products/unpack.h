// Blocks of a file as words of four bytes. A format describes its blocks once, by a struct Form
// with functions of a Block: that is a block of one row, which is dequantized, or one of each row
// of a vector, which are packed. A Block has
//
//     Word          an unsigned integer of 32 bits, or a vector of them
//     word(offset)  four bytes, in the order of memory
//
// Masks and shifts within bytes do not depend on the order of bytes in a word.
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode/products/tile.h"

#define UNPACK_INLINE inline __attribute__((always_inline))

namespace tensor_ops {
namespace {

constexpr std::size_t kFours = kBlockColumns / 4;  // groups of four columns of a block
constexpr std::size_t kSuperColumns = 256;

constexpr std::uint32_t kLowHalves = 0x0F0F0F0F, kLowTwoBits = 0x03030303, kLowBits = 0x01010101;

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
constexpr bool kIsBigEndian = true;
#else
constexpr bool kIsBigEndian = false;
#endif

// The byte at a place of memory, or the half-precision number at byte 2 * place.
template <class Word>
UNPACK_INLINE Word byte_of(Word word, std::size_t place) {
  return word >> static_cast<int>(8 * (kIsBigEndian ? 3 - place : place)) & 0xFFu;
}
// A byte at a place of memory, beside zeros.
template <class Word>
UNPACK_INLINE Word in_byte(Word byte, std::size_t place) {
  return byte << static_cast<int>(8 * (kIsBigEndian ? 3 - place : place));
}
template <class Word>
UNPACK_INLINE Word half_of(Word word, std::size_t place) {
  return word >> static_cast<int>(16 * (kIsBigEndian ? 1 - place : place)) & 0xFFFFu;
}

// Bit i of four becomes the lowest of byte i.
template <class Word>
UNPACK_INLINE Word spread(Word four) {
  return (kIsBigEndian ? four * 0x08040201u >> 3 : four * 0x00204081u) & kLowBits;
}

// Integers of 2 bits of 32 columns: of every 128, byte i of 32 has those of columns i, 32 + i,
// 64 + i and 96 + i.
template <class Block>
UNPACK_INLINE void unpack_two_bits(const Block& block, std::size_t first, std::size_t b,
                                   typename Block::Word* q) {
  for (std::size_t i = 0; i < kFours; ++i)
    q[i] = block.word(first + b / 4 * 32 + 4 * i) >> static_cast<int>(b % 4 * 2) & kLowTwoBits;
}

// The integers of 6 bits of q4_K and q5_K. The upper two bits of the last four blocks' integers are
// in the bytes of the first four blocks'.
template <class Word>
struct ScalesAndMinimums {
  Word scales[2], minimums[2];  // byte b % 4 of word b / 4 is that of block b

  template <class Block>
  UNPACK_INLINE explicit ScalesAndMinimums(const Block& block) {
    const Word first = block.word(4), second = block.word(8), last = block.word(12);
    scales[0] = first & 0x3F3F3F3Fu;
    minimums[0] = second & 0x3F3F3F3Fu;
    scales[1] = (last & kLowHalves) | (first >> 2 & 0x30303030u);
    minimums[1] = (last >> 4 & kLowHalves) | (second >> 2 & 0x30303030u);
  }
};

// The rest of a block of these formats: both numbers, and pairs of bytes.
template <class Tile, class Block, class Lines>
UNPACK_INLINE void set_scales_and_minimums(const Block& block, const Lines& lines) {
  for (std::size_t h = 0; h < 2; ++h) lines.set(h, half_of(block.word(0), h));
  const ScalesAndMinimums<typename Block::Word> six(block);
  for (std::size_t b = 0; b < Tile::kBlocks; ++b) {
    const auto s = byte_of(six.scales[b / 4], b % 4), t = byte_of(six.minimums[b / 4], b % 4);
    lines.set(Tile::kPairs + b, kIsBigEndian ? s << 8 | t : t << 8 | s);
  }
}

}  // namespace
}  // namespace tensor_ops
