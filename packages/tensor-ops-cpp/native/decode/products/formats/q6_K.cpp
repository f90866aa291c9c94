// q6_K: 256 columns share a half-precision d, and 16 an integer s from -128 to 127; a weight is
// d s (q - 32) with q from 0 to 63.
#include "decode/products/format.h"

namespace tensor_ops {
namespace {
using Tile = SuperBlockTile<6>;
}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Q6_K : SuperBlock<Tile> {
  static constexpr int kLargest = 63, kZero = 32;
  static constexpr std::size_t kScales = 2;
  static constexpr bool kHasMinimum = false;
  // The integers of a tile are s + 128.
  const Floats scale[kScales]{half(0) * (to_floats(low_integers()) - 128.0f),
                              half(0) * (to_floats(high_integers()) - 128.0f)};
  using SuperBlock::SuperBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const { return nibbles(j) | high<2>(4, j); }
};

}  // namespace

EXPORT_BLOCK_PRODUCTS(q6_K, Q6_K)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {
namespace {

constexpr std::size_t kBlockBytes = 210;
constexpr std::size_t kHigh = 128, kIntegers = 192, kScale = 208;  // where they are

// Of each 128 columns, 64 bytes have the lower halves and 32 the upper two bits: byte i of those
// has the bits of columns i, 32 + i, 64 + i and 96 + i.
void unpack(const unsigned char* block, FourColumns* q) {
  for (std::size_t part = 0; part < 2; ++part)
    for (std::size_t b = 0; b < 4; ++b)
      for (std::size_t i = 0; i < kFours; ++i) {
        const FourColumns low = load_four(block + part * 64 + b % 2 * 32 + 4 * i) >> b / 2 * 4;
        const FourColumns high = load_four(block + kHigh + part * 32 + 4 * i) >> b * 2;
        *q++ = (low & kLowHalves) | (high & kLowTwoBits) << 4;
      }
}

void set_halves(const unsigned char* block, BlockHalves halves) {
  halves.set(0, block + kScale);
  for (std::size_t b = 0; b < Tile::kBlocks; ++b) {
    const unsigned char* s = block + kIntegers + 2 * b;
    const unsigned char pair[] = {static_cast<unsigned char>(s[0] ^ 0x80),
                                  static_cast<unsigned char>(s[1] ^ 0x80)};
    halves.set(Tile::kPairs + b, pair);
  }
}

void dequantize(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kSuperColumns, row += kBlockBytes, values += kSuperColumns) {
    FourColumns q[kSuperColumns / 4];
    unpack(row, q);
    const float d = load_half(row + kScale);
    for (std::size_t k = 0; k < kSuperColumns; ++k) {
      const auto s = static_cast<signed char>(row[kIntegers + k / 16]);
      values[k] = d * static_cast<float>(s) * static_cast<float>(integer(q, k) - 32);
    }
  }
}

}  // namespace

DECLARE_BLOCK_FORMAT(q6_K, kSuperColumns, kBlockBytes, Tile::bytes,
                     pack_blocks<Tile, 6, kBlockBytes, unpack, set_halves, Tile::kBlocks>,
                     dequantize)

}  // namespace tensor_ops

#endif
