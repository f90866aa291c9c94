// The formats of GGML with codebooks: an entry has the magnitudes of 8 columns, each one of three,
// or of 4 columns, each one of eight. An index chooses it, and the columns have signs. 32 or 16
// columns share an odd integer, which multiplies the block's number and a power of two.
//
// A tile has a code for each weight instead of the index: its magnitude and, above that, its sign.
#pragma once

#include "decode/products/code_blocks.h"

namespace tensor_ops {

// Sorted; codes of 2 bits for 8 columns, or of 4 bits for 4 columns.
extern const std::uint16_t iq2_xxs_codebook[256], iq2_xs_codebook[512], iq2_s_codebook[1024],
    iq3_xxs_codebook[256], iq3_s_codebook[512];

namespace {

// Codes of iq2 have three bits, and two of those stand for nothing.
[[maybe_unused]] constexpr CodeValues kOfIq2{8, 25, 43, 0, -8, -25, -43, 0};

// The bytes of a word as an integer, the first one lowest.
template <class Word>
UNPACK_INLINE Word little_endian(Word word) {
  if (!kIsBigEndian) return word;
  return byte_of(word, 0) | byte_of(word, 1) << 8 | byte_of(word, 2) << 16 | byte_of(word, 3) << 24;
}

// table[index] in each lane.
template <class Word>
UNPACK_INLINE Word entry_of(const std::uint16_t* table, Word index) {
  std::uint32_t lanes[sizeof(Word) / 4];
  __builtin_memcpy(lanes, &index, sizeof index);
  for (std::uint32_t& lane : lanes) lane = table[lane];
  __builtin_memcpy(&index, lanes, sizeof index);
  return index;
}

// Seven signs, with an eighth that makes their number even.
template <class Word>
UNPACK_INLINE Word with_parity(Word signs) {
  Word parity = signs ^ signs >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return signs | (parity & 1u) << 7;
}

// The codes of four columns: magnitudes, which are `apart` bits apart, and above them signs.
template <int bits, int apart, class Word>
UNPACK_INLINE Word signed_codes(Word magnitudes, Word signs) {
  constexpr std::uint32_t mask = (1u << bits) - 1;
  Word codes = spread(signs & 15u) << bits;
  for (int i = 0; i < 4; ++i)
    codes |= in_byte(magnitudes >> apart * i & mask, static_cast<std::size_t>(i));
  return codes;
}

// The odd integers of iq2_xs, iq2_s and iq3_s: four for two bytes of a block.
template <std::size_t count, class Block, class Word>
UNPACK_INLINE void odd_integers(const Block& block, std::size_t offset, Word* words) {
  for (std::size_t w = 0; w < count / 4; ++w) {
    words[w] = Word{};
    for (std::size_t i = 0; i < 4; ++i) {
      const Word two = byte_of(block.word(offset + w / 2 * 4), w % 2 * 2 + i / 2);
      words[w] |= in_byte(2u * (two >> static_cast<int>(i % 2 * 4) & 15u) + 1u, i);
    }
  }
}

// Words of iq2_xxs and iq3_xxs, one of 32 columns: four times seven signs, and above them what the
// odd integer is made of.
template <class Word>
UNPACK_INLINE Word signs_of_word(Word word, std::size_t i) {
  return with_parity(little_endian(word) >> static_cast<int>(7 * i) & 127u);
}
template <std::size_t count, class Block, class Word>
UNPACK_INLINE void integers_of_words(const Block& block, std::size_t offset, std::size_t stride,
                                     Word* words) {
  for (std::size_t w = 0; w < count / 4; ++w) {
    words[w] = Word{};
    for (std::size_t i = 0; i < 4; ++i) {
      const Word word = block.word(offset + (4 * w + i) * 8 / count * stride);
      words[w] |= in_byte(2u * (little_endian(word) >> 28) + 1u, i);
    }
  }
}

// What the Form of such a format derives from. Form::entry(block, b, i) has the codes of columns
// 8 i, or 4 i, and the next ones of 32; Form::signs(block, b, i) those of columns 8 i to 8 i + 7.
template <class Form, std::size_t entry_columns, std::size_t bytes>
struct CodebookForm {
  static constexpr std::size_t kColumns = kSuperColumns, kBits = entry_columns == 4 ? 4 : 3,
                               kBytes = bytes, kWordsAt = 2, kNumberAt = 0;
  using Tile = CodeSuperTile<kBits>;

  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    for (std::size_t i = 0; i < kFours; ++i) {
      const auto signs = Form::signs(block, b, i / 2) >> static_cast<int>(i % 2 * 4);
      if constexpr (entry_columns == 4)
        q[i] = signed_codes<3, 4>(Form::entry(block, b, i), signs);
      else
        q[i] =
            signed_codes<2, 2>(Form::entry(block, b, i / 2) >> static_cast<int>(i % 2 * 8), signs);
    }
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block& block, const Lines& lines) {
    set_code_head<Form>(block, lines);
  }
};

}  // namespace
}  // namespace tensor_ops
