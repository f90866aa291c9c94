// mxfp4: 32 columns share the exponent e of a power of two; a weight is 2^(e - 128) times twice a
// number of FP4.
#include "decode/products/code_blocks.h"

namespace tensor_ops {
namespace {
namespace mxfp4 {
// How a file has a block.
struct Form {
  using Tile = CodeTile<4, 4, 1, false>;
  // Variants that pack no tiles leave some of these unused.
  [[maybe_unused]] static constexpr std::size_t kColumns = kBlockColumns, kBits = 4, kBytes = 17,
                                                kWordsAt = 1;
  [[maybe_unused]] static constexpr const CodeValues& kValues = kFp4;

  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t, typename Block::Word* q) {
    unpack_nibbles<32>(block, kWordsAt, q);
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block&, const Lines& lines) {
    lines.copy_byte(0, 0);
  }
  // The bits of 2^(e - 128) as float32. The first are larger where that is subnormal.
  template <class Int>
  static UNPACK_INLINE Int power(Int e) {
    const Int subnormal = (e + 1) * (1 << 21), normal = (e - 1) * (1 << 23);
    return subnormal > normal ? subnormal : normal;
  }
};
}  // namespace mxfp4
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct MXFP4 : CodeBlock<mxfp4::Form::Tile> {
  const Floats scale[kScales]{
      bit_cast<Floats>(mxfp4::Form::power(widened_bytes<unsigned char>(scale_bytes(0))))};
  using CodeBlock::CodeBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const {
    return look_up(kFp4Table.bytes, nibbles<true>(j));
  }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(mxfp4, MXFP4)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

struct MXFP4 : mxfp4::Form {
  static float scale(const unsigned char* block, std::size_t, std::size_t) {
    const std::int32_t bits = power(std::int32_t{block[0]});
    return load_float(reinterpret_cast<const unsigned char*>(&bits));
  }
};

}  // namespace

DECLARE_BLOCK_FORMAT(mxfp4, kBlockColumns, mxfp4::Form::kBytes, mxfp4::Form::Tile::bytes,
                     dequantize_codes<MXFP4>)

}  // namespace tensor_ops

#endif
