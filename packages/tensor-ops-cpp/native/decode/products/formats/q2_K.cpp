// q2_K: 256 columns share d and e, both half-precision, and 16 the integers s and t from 0 to 15; a
// weight is d s q - e t with q from 0 to 3.
#include "decode/products/format.h"
#include "decode/products/unpack.h"

namespace tensor_ops {
namespace {
namespace q2_K {
// How a file has a block.
struct Form {
  using Tile = SuperBlockTile<2>;
  // Variants that pack no tiles leave some of these unused.
  [[maybe_unused]] static constexpr std::size_t kColumns = kSuperColumns, kBits = 2, kBytes = 84,
                                                kWordsAt = 0;
  static constexpr std::size_t kNumbers = 80;  // where they are
  static constexpr std::uint32_t kSign = kIsBigEndian ? 0x80 : 0x8000;

  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t b, typename Block::Word* q) {
    unpack_two_bits(block, 16, b, q);
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block& block, const Lines& lines) {
    lines.copy(0, kNumbers);
    lines.set(1, half_of(block.word(kNumbers), 1) ^ kSign);  // -e
    for (std::size_t b = 0; b < Tile::kBlocks; ++b) {
      const auto four = block.word(b / 2 * 4);
      lines.set(Tile::kPairs + b, byte_of(four, b % 2 * 2) | byte_of(four, b % 2 * 2 + 1) << 8);
    }
  }
};
}  // namespace q2_K
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q2_K : SuperBlock<q2_K::Form::Tile> {
  static constexpr int kLargest = 3, kZero = 0;
  static constexpr std::size_t kScales = 2;
  static constexpr bool kHasMinimum = true;
  // Shifts instead of masks, for which there are no registers.
  const Floats scale[kScales]{half(0) * to_floats(low_integers() << 28 >> 28),
                              half(0) * to_floats(high_integers() << 28 >> 28)};
  const Floats minimum[kScales]{half(1) * to_floats(low_integers() >> 4),
                                half(1) * to_floats(high_integers() >> 4)};
  using SuperBlock::SuperBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return high<2, 0>(0, j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q2_K, Q2_K)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {
namespace q2_K {

void dequantize(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kSuperColumns, row += Form::kBytes) {
    const float d = load_half(row + Form::kNumbers), e = load_half(row + Form::kNumbers + 2);
    for (std::size_t b = 0; b < kSuperColumns / kBlockColumns; ++b) {
      const Integers<Form> q(row, b);
      for (std::size_t k = 0; k < kBlockColumns; ++k) {
        const int both = row[2 * b + k / 16];
        *values++ = d * static_cast<float>(both & 15) * static_cast<float>(q[k]) -
                    e * static_cast<float>(both >> 4);
      }
    }
  }
}

}  // namespace q2_K
}  // namespace

DECLARE_BLOCK_FORMAT(q2_K, kSuperColumns, q2_K::Form::kBytes, q2_K::Form::Tile::bytes,
                     q2_K::dequantize)

}  // namespace tensor_ops

#endif
