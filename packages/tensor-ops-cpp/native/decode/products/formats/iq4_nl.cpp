// iq4_nl: 32 columns share a half-precision scale d; a weight is d times what its code stands for.
#include "decode/products/code_blocks.h"

namespace tensor_ops {
namespace {
namespace iq4_nl {
// How a file has a block.
struct Form {
  using Tile = BlockTile<1, 4>;
  // Variants that pack no tiles leave some of these unused.
  [[maybe_unused]] static constexpr std::size_t kColumns = kBlockColumns, kBits = 4, kBytes = 18,
                                                kWordsAt = 2;
  [[maybe_unused]] static constexpr const CodeValues& kValues = kNonlinear;

  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t, typename Block::Word* q) {
    unpack_nibbles<32>(block, kWordsAt, q);
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block&, const Lines& lines) {
    lines.copy(0, 0);
  }
};
}  // namespace iq4_nl
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct IQ4_NL : TileBlock<iq4_nl::Form::Tile> {
  static constexpr int kLargest = 255, kZero = 128;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = false;
  const Floats scale[kScales]{half(0)};
  using TileBlock::TileBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const {
    return look_up(kNonlinearTable.bytes, nibbles<true>(j));
  }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(iq4_nl, IQ4_NL)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

struct IQ4_NL : iq4_nl::Form {
  static float scale(const unsigned char* block, std::size_t, std::size_t) {
    return load_half(block);
  }
};

}  // namespace

DECLARE_BLOCK_FORMAT(iq4_nl, kBlockColumns, iq4_nl::Form::kBytes, iq4_nl::Form::Tile::bytes,
                     dequantize_codes<IQ4_NL>)

}  // namespace tensor_ops

#endif
