// q4_K: 256 columns share d and e, both half-precision, and 32 the integers s and t from 0 to 63; a
// weight is d s q - e t with q from 0 to 15.
#include "decode/products/format.h"
#include "decode/products/unpack.h"

namespace tensor_ops {
namespace {
namespace q4_K {
// How a file has a block.
struct Form {
  using Tile = SuperBlockTile<4>;
  // Variants that pack no tiles leave some of these unused.
  [[maybe_unused]] static constexpr std::size_t kColumns = kSuperColumns, kBits = 4, kBytes = 144,
                                                kWordsAt = 0;

  // Byte i of the 32 of every 64 columns has those of columns i and 32 + i.
  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    for (std::size_t i = 0; i < kFours; ++i)
      q[i] = block.word(16 + b / 2 * 32 + 4 * i) >> static_cast<int>(b % 2 * 4) & kLowHalves;
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block& block, const Lines& lines) {
    set_scales_and_minimums<Tile>(block, lines);
  }
};
}  // namespace q4_K
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q4_K : SuperBlock<q4_K::Form::Tile> {
  static constexpr int kLargest = 15, kZero = 0;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = true;
  const Floats scale[kScales]{half(0) * to_floats(low_integers())};
  const Floats minimum[kScales]{-half(1) * to_floats(high_integers())};
  using SuperBlock::SuperBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return nibbles(j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q4_K, Q4_K)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_BLOCK_FORMAT(q4_K, kSuperColumns, q4_K::Form::kBytes, q4_K::Form::Tile::bytes,
                     dequantize_super_blocks<q4_K::Form>)

}  // namespace tensor_ops

#endif
