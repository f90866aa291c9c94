// iq2_xs: 256 columns share a half-precision d, and 16 an integer s from 0 to 15; a weight is
// d / 8 (2 s + 1) times 8, 25 or 43, with a sign. Indices have 9 bits, and signs 7 of 8 columns.
#include "decode/products/codebooks.h"

namespace tensor_ops {
namespace {
namespace iq2_xs {
// How a file has a block.
struct Form : CodebookForm<Form, 8, 74> {
  [[maybe_unused]] static constexpr float kFactor = 0.125f;
  [[maybe_unused]] static constexpr const CodeValues& kValues = kOfIq2;

  // An index of 9 bits and 7 signs.
  template <class Block>
  static UNPACK_INLINE auto pair(const Block& block, std::size_t b, std::size_t i) {
    const auto two = block.word(2 + 8 * b + i / 2 * 4);
    return byte_of(two, i % 2 * 2) | byte_of(two, i % 2 * 2 + 1) << 8;
  }
  template <class Block>
  static UNPACK_INLINE auto entry(const Block& block, std::size_t b, std::size_t i) {
    return entry_of(iq2_xs_codebook, pair(block, b, i) & 511u);
  }
  template <class Block>
  static UNPACK_INLINE auto signs(const Block& block, std::size_t b, std::size_t i) {
    return with_parity(pair(block, b, i) >> 9);
  }
  template <class Block>
  static UNPACK_INLINE void integers(const Block& block, typename Block::Word* words) {
    odd_integers<16>(block, 66, words);
  }
};
}  // namespace iq2_xs
}  // namespace
}  // namespace tensor_ops

CODE_SUPER_FORMAT(iq2_xs, codes_3)
