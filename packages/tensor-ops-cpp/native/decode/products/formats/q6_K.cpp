// q6_K: 256 columns share a half-precision d, and 16 an integer s from -128 to 127; a weight is
// d s (q - 32) with q from 0 to 63.
#include "decode/products/format.h"
#include "decode/products/unpack.h"

namespace tensor_ops {
namespace {
namespace q6_K {
// How a file has a block.
struct Form {
  using Tile = SuperBlockTile<6>;
  // Variants that pack no tiles leave some of these unused.
  [[maybe_unused]] static constexpr std::size_t kColumns = kSuperColumns, kBits = 6, kBytes = 210,
                                                kWordsAt = 0;
  static constexpr std::size_t kHigh = 128, kIntegers = 192, kScale = 208;  // where they are

  // Every 128 columns have their lower halves in 64 bytes and the upper two bits in 32.
  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    unpack_two_bits(block, kHigh, b, q);
    const std::size_t lows = b / 4 * 64 + b % 2 * 32;
    for (std::size_t i = 0; i < kFours; ++i) {
      const auto low = block.word(lows + 4 * i) >> static_cast<int>(b % 4 / 2 * 4);
      q[i] = (low & kLowHalves) | q[i] << 4;
    }
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block& block, const Lines& lines) {
    lines.copy(0, kScale);
    lines.set(1, typename Block::Word{});
    for (std::size_t b = 0; b < Tile::kBlocks; ++b)
      lines.set(Tile::kPairs + b, half_of(block.word(kIntegers + b / 2 * 4) ^ 0x80808080u, b % 2));
  }
};
}  // namespace q6_K
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q6_K : SuperBlock<q6_K::Form::Tile> {
  static constexpr int kLargest = 63, kZero = 32;
  static constexpr std::size_t kScales = 2;
  static constexpr bool kHasMinimum = false;
  // The integers of a tile are s + 128.
  const Floats scale[kScales]{half(0) * (to_floats(low_integers()) - 128.0f),
                              half(0) * (to_floats(high_integers()) - 128.0f)};
  using SuperBlock::SuperBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return nibbles(j) | high<2>(4, j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q6_K, Q6_K)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {
namespace q6_K {

void dequantize(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kSuperColumns, row += Form::kBytes) {
    const float d = load_half(row + Form::kScale);
    for (std::size_t b = 0; b < kSuperColumns / kBlockColumns; ++b) {
      const Integers<Form> q(row, b);
      for (std::size_t k = 0; k < kBlockColumns; ++k) {
        const auto s = static_cast<signed char>(row[Form::kIntegers + 2 * b + k / 16]);
        *values++ = d * static_cast<float>(s) * static_cast<float>(q[k] - 32);
      }
    }
  }
}

}  // namespace q6_K
}  // namespace

DECLARE_BLOCK_FORMAT(q6_K, kSuperColumns, q6_K::Form::kBytes, q6_K::Form::Tile::bytes,
                     q6_K::dequantize)

}  // namespace tensor_ops

#endif
