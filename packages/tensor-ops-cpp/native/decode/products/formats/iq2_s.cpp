// iq2_s: 256 columns share a half-precision d, and 16 an integer s from 0 to 15; a weight is
// d / 8 (2 s + 1) times 8, 25 or 43, with a sign. Indices have 10 bits.
#include "decode/products/codebooks.h"

namespace tensor_ops {
namespace {
namespace iq2_s {
// How a file has a block.
struct Form : CodebookForm<Form, 8, 82> {
  [[maybe_unused]] static constexpr float kFactor = 0.125f;
  [[maybe_unused]] static constexpr const CodeValues& kValues = kOfIq2;

  template <class Block>
  static UNPACK_INLINE auto entry(const Block& block, std::size_t b, std::size_t i) {
    const auto low = byte_of(block.word(2 + 4 * b), i);
    const auto high = byte_of(block.word(66 + b / 4 * 4), b % 4) >> static_cast<int>(2 * i) & 3u;
    return entry_of(iq2_s_codebook, low | high << 8);
  }
  template <class Block>
  static UNPACK_INLINE auto signs(const Block& block, std::size_t b, std::size_t i) {
    return byte_of(block.word(34 + 4 * b), i);
  }
  template <class Block>
  static UNPACK_INLINE void integers(const Block& block, typename Block::Word* words) {
    odd_integers<16>(block, 74, words);
  }
};
}  // namespace iq2_s
}  // namespace
}  // namespace tensor_ops

CODE_SUPER_FORMAT(iq2_s, codes_3)
