// q4_K: 256 columns share d and e, both half-precision, and 32 the integers s and t from 0 to 63; a
// weight is d s q - e t with q from 0 to 15.
#include "decode/products/format.h"

namespace tensor_ops {
namespace {
using Tile = SuperBlockTile<4>;
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q4_K : SuperBlock<Tile> {
  static constexpr int kLargest = 15, kZero = 0;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = true;
  const Floats scale[kScales]{half(0) * to_floats(low_integers())};
  const Floats minimum{-half(1) * to_floats(high_integers())};
  using SuperBlock::SuperBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return nibbles(j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q4_K, Q4_K)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

constexpr std::size_t kBlockBytes = 144;

// Of each 64 columns, byte i of 32 has those of columns i and 32 + i.
void unpack(const unsigned char* block, FourColumns* q) {
  for (std::size_t part = 0; part < kSuperColumns / 64; ++part)
    for (std::size_t half = 0; half < 2; ++half)
      for (std::size_t i = 0; i < kFours; ++i)
        *q++ = load_four(block + 16 + part * 32 + 4 * i) >> 4 * half & kLowHalves;
}

}  // namespace

DECLARE_BLOCK_FORMAT(
    q4_K, kSuperColumns, kBlockBytes, Tile::bytes,
    pack_blocks<Tile, 4, kBlockBytes, unpack, set_scales_and_minimums<Tile>, Tile::kBlocks>,
    dequantize_super_blocks<kBlockBytes, unpack>)

}  // namespace tensor_ops

#endif
