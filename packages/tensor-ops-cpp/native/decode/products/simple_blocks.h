// The formats q4_0, q4_1, q5_0, q5_1 and q8_0: 32 columns share a scale d, in half precision. A
// weight is d (q - z), or d q + m with a minimum m, in half precision too. q is an integer of
// `bits` bits and z is half of its range. A file of such a format is one line:
//
//     SIMPLE_BLOCK_FORMAT(name, bits, has_minimum)
#pragma once

#include "decode/products/format.h"

namespace tensor_ops {
namespace {

template <std::size_t bits, bool has_minimum>
struct SimpleBlock {
  static constexpr std::size_t kBits = bits;
  static constexpr bool kHasMinimum = has_minimum;
  static constexpr std::size_t kHalves = has_minimum ? 2 : 1;
  static constexpr std::size_t kBytes = 2 * kHalves + kBlockColumns * bits / 8;  // in a file
  static constexpr int kLargest = (1 << bits) - 1, kZero = has_minimum ? 0 : 1 << (bits - 1);
  using Tile = BlockTile<kHalves, bits>;
};

}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/blocks.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Form>
struct SimpleTileBlock : TileBlock<typename Form::Tile> {
  static constexpr int kLargest = Form::kLargest, kZero = Form::kZero;
  static constexpr std::size_t kScales = 1;
  static constexpr bool kHasMinimum = Form::kHasMinimum;
  const Floats scale[kScales]{this->half(0)};
  const Floats minimum{kHasMinimum ? this->half(Form::kHalves - 1) : Floats{}};
  using TileBlock<typename Form::Tile>::TileBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const {
    if constexpr (Form::kBits == 8) return this->line(j);
    if constexpr (Form::kBits == 5) return this->nibbles(j) | this->template high<1>(4, j);
    if constexpr (Form::kBits == 4) return this->nibbles(j);
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#define SIMPLE_BLOCK_FORMAT(format, bits, has_minimum)           \
  namespace tensor_ops::TENSOR_OPS_LEVEL {                       \
  namespace {                                                    \
  using Block = SimpleTileBlock<SimpleBlock<bits, has_minimum>>; \
  }                                                              \
  EXPORT_BLOCK_PRODUCTS(format, Block)                           \
  }

#else

namespace tensor_ops {
namespace {

// The integers of 32 columns. 16 bytes have the lower four bits: those of the first 16 columns in
// their low halves, those of the last 16 in their high halves. Before them 4 bytes have the fifth
// bits, if there are any. Integers of 8 bits are bytes, and signed: q - z.
template <class Form>
void unpack_simple(const unsigned char* block, FourColumns* q) {
  const unsigned char* const integers = block + 2 * Form::kHalves;
  for (std::size_t i = 0; i < kFours; ++i) {
    if constexpr (Form::kBits == 8) {
      q[i] = load_four(integers + 4 * i) ^ 0x80808080;
    } else {
      const unsigned char* const low = integers + (Form::kBits == 5 ? 4 : 0);
      q[i] = load_four(low + 4 * (i % 4)) >> i / 4 * 4 & kLowHalves;
      if constexpr (Form::kBits == 5) q[i] |= spread(integers[i / 2] >> i % 2 * 4 & 15) << 4;
    }
  }
}

template <class Form>
void set_simple_halves(const unsigned char* block, BlockHalves halves) {
  for (std::size_t h = 0; h < Form::kHalves; ++h) halves.set(h, block + 2 * h);
}

template <class Form>
void dequantize_simple(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kBlockColumns, row += Form::kBytes, values += kBlockColumns) {
    FourColumns q[kFours];
    unpack_simple<Form>(row, q);
    const float scale = load_half(row);
    [[maybe_unused]] const float minimum = load_half(row + 2);
    for (std::size_t k = 0; k < kBlockColumns; ++k) {
      values[k] = scale * static_cast<float>(integer(q, k) - Form::kZero);
      if constexpr (Form::kHasMinimum) values[k] += minimum;
    }
  }
}

}  // namespace
}  // namespace tensor_ops

#define SIMPLE_BLOCK_FORMAT(format, bits, has_minimum)                                         \
  namespace tensor_ops {                                                                       \
  namespace {                                                                                  \
  using Form = SimpleBlock<bits, has_minimum>;                                                 \
  }                                                                                            \
  DECLARE_BLOCK_FORMAT(format, kBlockColumns, Form::kBytes, Form::Tile::bytes,                 \
                       pack_blocks<Form::Tile, Form::kBits, Form::kBytes, unpack_simple<Form>, \
                                   set_simple_halves<Form>>,                                   \
                       dequantize_simple<Form>)                                                \
  }

#endif
