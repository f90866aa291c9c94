// iq4_xs: 256 columns share a half-precision d, and 32 an integer s from -32 to 31; a weight is d s
// times what its code stands for.
#include "decode/products/code_blocks.h"

namespace tensor_ops {
namespace {
namespace iq4_xs {
// How a file has a block.
struct Form {
  using Tile = CodeSuperTile<4>;
  [[maybe_unused]] static constexpr std::size_t kColumns = kSuperColumns, kBits = 4, kBytes = 136,
                                                kWordsAt = 0, kNumberAt = 0;
  [[maybe_unused]] static constexpr float kFactor = 1;
  [[maybe_unused]] static constexpr const CodeValues& kValues = kNonlinear;

  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    unpack_nibbles<32>(block, 8 + b * 16, q);
  }
  // Four bytes have the lower halves of s + 32, two the upper two bits.
  template <class Block>
  static UNPACK_INLINE void integers(const Block& block, typename Block::Word* words) {
    using Word = typename Block::Word;
    const Word low = block.word(4), high = block.word(0);
    for (std::size_t w = 0; w < 2; ++w) {
      words[w] = Word{};
      for (std::size_t i = 0; i < 4; ++i) {
        const Word four = byte_of(low, 2 * w + i / 2) >> static_cast<int>(i % 2 * 4) & 0xFu;
        const Word two = byte_of(high, 2 + w) >> static_cast<int>(2 * i) & 3u;
        words[w] |= in_byte(((four | two << 4) - 32u) & 0xFFu, i);
      }
    }
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block& block, const Lines& lines) {
    set_code_head<Form>(block, lines);
  }
};
}  // namespace iq4_xs
}  // namespace
}  // namespace tensor_ops

CODE_SUPER_FORMAT(iq4_xs, codes_4)
