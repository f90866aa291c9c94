// q4_zp: 32 columns share a half-precision scale d and a zero point z from 0 to 255; a weight is
// d (q - z) with q from 0 to 15. GPTQ and AWQ have such weights.
#include "decode/products/code_blocks.h"

namespace tensor_ops {
namespace {
namespace q4_zp {
// How a file has a block: the scale, the zero point, and integers as those of q4_0.
struct Form {
  // A block's head is the scale, in two bytes, and the zero point, in a third one.
  using Tile = CodeTile<4, 4, 3, false>;
  // Variants that pack no tiles leave some of these unused.
  [[maybe_unused]] static constexpr std::size_t kColumns = kBlockColumns, kBits = 4, kBytes = 19,
                                                kWordsAt = 3, kZeroAt = 2;

  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t, typename Block::Word* q) {
    unpack_nibbles<32>(block, kWordsAt, q);
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block&, const Lines& lines) {
    lines.copy(0, 0);
    lines.copy_byte(2, kZeroAt);
  }
};
}  // namespace q4_zp
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q4ZP : CodeBlock<q4_zp::Form::Tile> {
  static constexpr int kLargest = 15, kZero = 0;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = true;
  // Exact, as a weight is to which both add.
  const Floats scale[kScales]{half(0)};
  const Floats minimum[kScales]{
      -__builtin_convertvector(widened_bytes<unsigned char>(scale_bytes(2)), Floats) * scale[0]};
  using CodeBlock::CodeBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return nibbles(j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q4_zp, Q4ZP)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

void dequantize_q4_zp(const unsigned char* row, std::size_t columns, float* values) {
  using q4_zp::Form;
  for (; columns; columns -= kBlockColumns, row += Form::kBytes) {
    const Integers<Form> q(row);
    const float scale = load_half(row);
    for (std::size_t k = 0; k < kBlockColumns; ++k)
      *values++ = scale * static_cast<float>(q[k] - row[Form::kZeroAt]);
  }
}

}  // namespace

DECLARE_BLOCK_FORMAT(q4_zp, kBlockColumns, q4_zp::Form::kBytes, q4_zp::Form::Tile::bytes,
                     dequantize_q4_zp)

}  // namespace tensor_ops

#endif
