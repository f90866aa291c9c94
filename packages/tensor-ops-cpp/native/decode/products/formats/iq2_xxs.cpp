// iq2_xxs: 256 columns share a half-precision d, and 32 an integer s from 0 to 15; a weight is
// d / 8 (2 s + 1) times 8, 25 or 43, with a sign. Indices have 8 bits, and signs 7 of 8 columns.
#include "decode/products/codebooks.h"

namespace tensor_ops {
namespace {
namespace iq2_xxs {
// How a file has a block.
struct Form : CodebookForm<Form, 8, 66> {
  [[maybe_unused]] static constexpr float kFactor = 0.125f;
  [[maybe_unused]] static constexpr const CodeValues& kValues = kOfIq2;

  template <class Block>
  static UNPACK_INLINE auto entry(const Block& block, std::size_t b, std::size_t i) {
    return entry_of(iq2_xxs_codebook, byte_of(block.word(2 + 8 * b), i));
  }
  template <class Block>
  static UNPACK_INLINE auto signs(const Block& block, std::size_t b, std::size_t i) {
    return signs_of_word(block.word(6 + 8 * b), i);
  }
  template <class Block>
  static UNPACK_INLINE void integers(const Block& block, typename Block::Word* words) {
    integers_of_words<16>(block, 6, 8, words);  // each for 32 columns, twice
  }
};
}  // namespace iq2_xxs
}  // namespace
}  // namespace tensor_ops

CODE_SUPER_FORMAT(iq2_xxs, codes_3)
