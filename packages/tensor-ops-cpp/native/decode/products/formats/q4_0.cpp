// q4_0: 32 columns share a half-precision scale d; a weight is d (q - 8) with q from 0 to 15.
#include "decode/products/format.h"

namespace tensor_ops {
namespace {
using Tile = BlockTile<1, 4>;
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q4_0 : TileBlock<Tile> {
  static constexpr int kLargest = 15, kZero = 8;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = false;
  const Floats scale[kScales]{half(0)};
  using TileBlock::TileBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return nibbles(j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q4_0, Q4_0)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

constexpr std::size_t kBlockBytes = 18;

void pack_block(const unsigned char* block, BlockRow row) {
  row.set_half(0, block);
  for (std::size_t j = 0; j < Tile::kLines; ++j) row.set_word(j, load_four(block + 2 + 4 * j));
}

void dequantize(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kBlockColumns, row += kBlockBytes, values += kBlockColumns) {
    const float scale = load_half(row);
    for (std::size_t i = 0; i < 16; ++i) {
      values[i] = scale * static_cast<float>((row[2 + i] & 15) - 8);
      values[16 + i] = scale * static_cast<float>((row[2 + i] >> 4) - 8);
    }
  }
}

}  // namespace

DECLARE_BLOCK_FORMAT(q4_0, kBlockColumns, kBlockBytes, Tile::bytes,
                     pack_blocks<Tile, kBlockBytes, pack_block>, dequantize)

}  // namespace tensor_ops

#endif
