// iq3_xxs: 256 columns share a half-precision d, and 32 an integer s from 0 to 15; a weight is
// d / 4 (2 s + 1) times 4, 12, 20, 28, 36, 44, 52 or 62, with a sign. Indices have 8 bits, and
// signs 7 of 8 columns.
#include "decode/products/codebooks.h"

namespace tensor_ops {
namespace {
namespace iq3_xxs {
// How a file has a block.
struct Form : CodebookForm<Form, 4, 98> {
  [[maybe_unused]] static constexpr float kFactor = 0.25f;
  [[maybe_unused]] static constexpr CodeValues kValues{4,  12,  20,  28,  36,  44,  52,  62,
                                                       -4, -12, -20, -28, -36, -44, -52, -62};

  template <class Block>
  static UNPACK_INLINE auto entry(const Block& block, std::size_t b, std::size_t i) {
    return entry_of(iq3_xxs_codebook, byte_of(block.word(2 + 8 * b + i / 4 * 4), i % 4));
  }
  template <class Block>
  static UNPACK_INLINE auto signs(const Block& block, std::size_t b, std::size_t i) {
    return signs_of_word(block.word(66 + 4 * b), i);
  }
  template <class Block>
  static UNPACK_INLINE void integers(const Block& block, typename Block::Word* words) {
    integers_of_words<8>(block, 66, 4, words);
  }
};
}  // namespace iq3_xxs
}  // namespace
}  // namespace tensor_ops

CODE_SUPER_FORMAT(iq3_xxs, codes_4)
