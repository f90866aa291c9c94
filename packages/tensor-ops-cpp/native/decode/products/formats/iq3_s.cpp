// iq3_s: 256 columns share a half-precision d, and 32 an integer s from 0 to 15; a weight is
// d (2 s + 1) times an odd integer from 1 to 15, with a sign. Indices have 9 bits.
#include "decode/products/codebooks.h"

namespace tensor_ops {
namespace {
namespace iq3_s {
// How a file has a block.
struct Form : CodebookForm<Form, 4, 110> {
  [[maybe_unused]] static constexpr float kFactor = 1;
  [[maybe_unused]] static constexpr CodeValues kValues{1,  3,  5,  7,  9,  11,  13,  15,
                                                       -1, -3, -5, -7, -9, -11, -13, -15};

  template <class Block>
  static UNPACK_INLINE auto entry(const Block& block, std::size_t b, std::size_t i) {
    const auto low = byte_of(block.word(2 + 8 * b + i / 4 * 4), i % 4);
    const auto high = byte_of(block.word(66 + b / 4 * 4), b % 4) >> static_cast<int>(i) & 1u;
    return entry_of(iq3_s_codebook, low | high << 8);
  }
  template <class Block>
  static UNPACK_INLINE auto signs(const Block& block, std::size_t b, std::size_t i) {
    return byte_of(block.word(74 + 4 * b), i);
  }
  template <class Block>
  static UNPACK_INLINE void integers(const Block& block, typename Block::Word* words) {
    odd_integers<8>(block, 106, words);
  }
};
}  // namespace iq3_s
}  // namespace
}  // namespace tensor_ops

CODE_SUPER_FORMAT(iq3_s, codes_4)
