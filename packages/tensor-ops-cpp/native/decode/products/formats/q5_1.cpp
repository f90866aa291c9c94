// q5_1: 32 columns share a scale d and a minimum m, both half-precision; a weight is d q + m with q
// from 0 to 31.
#include "decode/products/format.h"

namespace tensor_ops {
namespace {
using Tile = BlockTile<2, 5>;
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q5_1 : TileBlock<Tile> {
  static constexpr int kLargest = 31, kZero = 0;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = true;
  const Floats scale[kScales]{half(0)}, minimum{half(1)};
  using TileBlock::TileBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return nibbles(j) | high<1>(4, j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q5_1, Q5_1)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

constexpr std::size_t kBlockBytes = 24;

void pack_block(const unsigned char* block, BlockRow row) {
  FourColumns q[kFours];
  unpack_five_bits(block + 4, q);
  row.set_half(0, block);
  row.set_half(1, block + 2);
  row.set_nibbles(0, q);
  row.set_high<1>(4, q);
}

void dequantize(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kBlockColumns, row += kBlockBytes, values += kBlockColumns) {
    FourColumns q[kFours];
    unpack_five_bits(row + 4, q);
    const float scale = load_half(row), minimum = load_half(row + 2);
    for (std::size_t k = 0; k < kBlockColumns; ++k)
      values[k] = scale * static_cast<float>(integer(q, k)) + minimum;
  }
}

}  // namespace

DECLARE_BLOCK_FORMAT(q5_1, kBlockColumns, kBlockBytes, Tile::bytes,
                     pack_blocks<Tile, kBlockBytes, pack_block>, dequantize)

}  // namespace tensor_ops

#endif
