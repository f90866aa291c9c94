// q8_0: 32 columns share a half-precision scale d; a weight is d q with q from -128 to 127. A tile
// has q + 128.
#include "decode/products/format.h"

namespace tensor_ops {
namespace {
using Tile = BlockTile<1, 8>;
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q8_0 : TileBlock<Tile> {
  static constexpr int kLargest = 255, kZero = 128;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = false;
  const Floats scale[kScales]{half(0)};
  using TileBlock::TileBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return line(j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q8_0, Q8_0)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

constexpr std::size_t kBlockBytes = 34;

void pack_block(const unsigned char* block, BlockRow row) {
  row.set_half(0, block);
  for (std::size_t j = 0; j < Tile::kLines; ++j)
    row.set_word(j, load_four(block + 2 + 4 * j) ^ 0x80808080);
}

void dequantize(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kBlockColumns, row += kBlockBytes, values += kBlockColumns) {
    const float scale = load_half(row);
    for (std::size_t i = 0; i < kBlockColumns; ++i)
      values[i] = scale * static_cast<float>(static_cast<signed char>(row[2 + i]));
  }
}

}  // namespace

DECLARE_BLOCK_FORMAT(q8_0, kBlockColumns, kBlockBytes, Tile::bytes,
                     pack_blocks<Tile, kBlockBytes, pack_block>, dequantize)

}  // namespace tensor_ops

#endif
