// nvfp4: of 64 columns 16 share a scale, a number of E4M3 without its sign; a weight is half the
// scale times twice a number of FP4. As in GGML, NaN is 0.
#include "decode/products/code_blocks.h"

namespace tensor_ops {
namespace {
namespace nvfp4 {
// How a file has a block.
struct Form {
  using Tile = CodeTile<4, 2, 2, false>;
  // Variants that pack no tiles leave some of these unused.
  [[maybe_unused]] static constexpr std::size_t kColumns = 64, kBits = 4, kBytes = 36, kWordsAt = 0;
  [[maybe_unused]] static constexpr const CodeValues& kValues = kFp4;

  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    unpack_nibbles<16>(block, 4 + b * 16, q);
  }
  // The tile has 0 in the place of NaN, and no signs.
  template <class Word>
  static UNPACK_INLINE Word scale_bits(Word byte) {
    return byte == 0x7F ? Word{} : byte & 0x7Fu;
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block& block, const Lines& lines) {
    for (std::size_t i = 0; i < 4; ++i) lines.set_byte(i, scale_bits(byte_of(block.word(0), i)));
  }
};
}  // namespace nvfp4
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct NVFP4 : CodeBlock<nvfp4::Form::Tile> {
  TENSOR_OPS_INLINE NVFP4(const unsigned char* tile, std::size_t block, std::size_t part)
      : CodeBlock(tile, block, part) {
    // GCC would keep those of an initializer on the stack.
    for (std::size_t s = 0; s < kScales; ++s) scale[s] = half_of(scale_bytes(s));
  }
  Floats scale[kScales];
  TENSOR_OPS_INLINE Words word(std::size_t j) const {
    return look_up(kFp4Table.bytes, nibbles<true>(j));
  }

 private:
  // Half of a number. E4M3 is half precision with fewer bits, and a bias of 7 instead of 15.
  static TENSOR_OPS_INLINE Floats half_of(const unsigned char* e4m3) {
    const Halves bits = widened_to_halves(e4m3) << 7;
    return Float16::widen(bits) * 128.0f;
  }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(nvfp4, NVFP4)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

struct NVFP4 : nvfp4::Form {
  static float scale(const unsigned char* block, std::size_t b, std::size_t half) {
    const unsigned bits = scale_bits(unsigned{block[2 * b + half]}) << 7;
    const unsigned char bytes[] = {static_cast<unsigned char>(bits),
                                   static_cast<unsigned char>(bits >> 8)};
    return load_half(bytes) * 128;
  }
};

}  // namespace

DECLARE_BLOCK_FORMAT(nvfp4, nvfp4::Form::kColumns, nvfp4::Form::kBytes, nvfp4::Form::Tile::bytes,
                     dequantize_codes<NVFP4>)

}  // namespace tensor_ops

#endif
