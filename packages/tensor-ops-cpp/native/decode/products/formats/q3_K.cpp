// q3_K: 256 columns share a half-precision d, and 16 an integer s from 0 to 63; a weight is
// d (s - 32) (q - 4) with q from 0 to 7.
#include "decode/products/format.h"
#include "decode/products/unpack.h"

namespace tensor_ops {
namespace {
namespace q3_K {
// How a file has a block.
struct Form {
  using Tile = SuperBlockTile<3>;
  // Variants that pack no tiles leave some of these unused.
  [[maybe_unused]] static constexpr std::size_t kColumns = kSuperColumns, kBits = 3, kBytes = 110,
                                                kWordsAt = 0;
  static constexpr std::size_t kLow = 32, kIntegers = 96, kScale = 108;  // where they are

  // Bit b of byte i of 32 is the third bit of column 32 b + i.
  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    unpack_two_bits(block, kLow, b, q);
    for (std::size_t i = 0; i < kFours; ++i)
      q[i] |= (block.word(4 * i) >> static_cast<int>(b) & kLowBits) << 2;
  }
  // s - 32 of columns 16 i and the next ones, in 8 bits. The lower halves of s are in 8 bytes, the
  // upper two bits in 4.
  template <class Block>
  static UNPACK_INLINE auto integer(const Block& block, std::size_t i) {
    const auto low = byte_of(block.word(kIntegers + i / 4 % 2 * 4), i % 4);
    const auto high = byte_of(block.word(kIntegers + 8), i % 4) >> static_cast<int>(i / 4 * 2);
    const auto four = low >> static_cast<int>(i / 8 * 4) & 15u;
    return ((four | (high & 3u) << 4) - 32u) & 0xFFu;
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block& block, const Lines& lines) {
    lines.copy(0, kScale);
    lines.set(1, typename Block::Word{});
    for (std::size_t b = 0; b < Tile::kBlocks; ++b)
      lines.set(Tile::kPairs + b, integer(block, 2 * b) | integer(block, 2 * b + 1) << 8);
  }
};
}  // namespace q3_K
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Integers are doubled, and the scales halved, since kZero is a multiple of 8.
struct Q3_K : SuperBlock<q3_K::Form::Tile> {
  static constexpr int kLargest = 14, kZero = 8;
  static constexpr std::size_t kScales = 2;
  static constexpr bool kHasMinimum = false;
  const Floats scale[kScales]{half(0) * 0.5f * to_floats(low_signed()),
                              half(0) * 0.5f * to_floats(high_signed())};
  using SuperBlock::SuperBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return high<2, 1>(0, j) | high<1, 3>(2, j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q3_K, Q3_K)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {
namespace q3_K {

void dequantize(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kSuperColumns, row += Form::kBytes) {
    const float d = load_half(row + Form::kScale);
    for (std::size_t b = 0; b < kSuperColumns / kBlockColumns; ++b) {
      const Integers<Form> q(row, b);
      for (std::size_t k = 0; k < kBlockColumns; ++k) {
        const auto s = static_cast<signed char>(Form::integer(RowBlock(row), 2 * b + k / 16));
        *values++ = d * static_cast<float>(s) * static_cast<float>(q[k] - 4);
      }
    }
  }
}

}  // namespace q3_K
}  // namespace

DECLARE_BLOCK_FORMAT(q3_K, kSuperColumns, q3_K::Form::kBytes, q3_K::Form::Tile::bytes,
                     q3_K::dequantize)

}  // namespace tensor_ops

#endif
