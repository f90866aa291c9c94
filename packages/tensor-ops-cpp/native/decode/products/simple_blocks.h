// The formats q4_0, q4_1, q5_0, q5_1 and q8_0: 32 columns share a scale d, in half precision. A
// weight is d (q - z), or d q + m with a minimum m, in half precision too. q is an integer of
// `bits` bits and z is half of its range. A file of such a format is one line:
//
//     SIMPLE_BLOCK_FORMAT(name, bits, has_minimum)
#pragma once

#include "decode/products/format.h"
#include "decode/products/unpack.h"

namespace tensor_ops {
namespace {

template <std::size_t bits, bool has_minimum>
struct SimpleBlock {
  static constexpr std::size_t kBits = bits;
  static constexpr bool kHasMinimum = has_minimum;
  static constexpr std::size_t kHalves = has_minimum ? 2 : 1;
  static constexpr std::size_t kColumns = kBlockColumns;
  static constexpr std::size_t kBytes = 2 * kHalves + kBlockColumns * bits / 8;  // in a file
  static constexpr std::size_t kWordsAt = 2 * kHalves;
  static constexpr int kLargest = (1 << bits) - 1, kZero = has_minimum ? 0 : 1 << (bits - 1);
  using Tile = BlockTile<kHalves, bits>;

  // 16 bytes have the lower four bits: those of the first 16 columns in their low halves, those of
  // the last 16 in their high halves. Before them 4 bytes have the fifth bits, if there are any.
  // Integers of 8 bits are bytes, and signed: q - z.
  template <class Block>
  static UNPACK_INLINE void unpack(const Block& block, std::size_t, typename Block::Word* q) {
    constexpr std::size_t low = kWordsAt + (bits == 5 ? 4 : 0);
    for (std::size_t i = 0; i < kFours; ++i) {
      if constexpr (bits == 8) {
        q[i] = block.word(low + 4 * i) ^ 0x80808080u;
      } else {
        q[i] = block.word(low + 4 * (i % 4)) >> static_cast<int>(i / 4 * 4) & kLowHalves;
        if constexpr (bits == 5) {
          const auto fifth = byte_of(block.word(kWordsAt), i / 2);
          q[i] |= spread(fifth >> static_cast<int>(i % 2 * 4) & 15u) << 4;
        }
      }
    }
  }
  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block&, const Lines& lines) {
    for (std::size_t h = 0; h < kHalves; ++h) lines.copy(h, 2 * h);
  }
};

}  // namespace
}  // namespace tensor_ops

#define SIMPLE_BLOCK_FORM(format, bits, has_minimum) \
  namespace tensor_ops {                             \
  namespace {                                        \
  namespace format {                                 \
  using Form = SimpleBlock<bits, has_minimum>;       \
  }                                                  \
  }                                                  \
  }

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
  const Floats minimum[kScales]{kHasMinimum ? this->half(Form::kHalves - 1) : Floats{}};
  using TileBlock<typename Form::Tile>::TileBlock;
  TENSOR_OPS_INLINE Words word(std::size_t j) const {
    if constexpr (Form::kBits == 8) return this->line(j);
    if constexpr (Form::kBits == 5) return this->nibbles(j) | this->template high<1>(4, j);
    if constexpr (Form::kBits == 4) return this->nibbles(j);
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#define SIMPLE_BLOCK_FORMAT(format, bits, has_minimum) \
  SIMPLE_BLOCK_FORM(format, bits, has_minimum)         \
  namespace tensor_ops::TENSOR_OPS_LEVEL {             \
  namespace {                                          \
  using Block = SimpleTileBlock<format::Form>;         \
  }                                                    \
  EXPORT_BLOCK_PRODUCTS(format, Block)                 \
  }

#else

namespace tensor_ops {
namespace {

template <class Form>
void dequantize_simple(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kBlockColumns, row += Form::kBytes, values += kBlockColumns) {
    const Integers<Form> q(row);
    const float scale = load_half(row);
    [[maybe_unused]] const float minimum = load_half(row + 2);
    for (std::size_t k = 0; k < kBlockColumns; ++k) {
      values[k] = scale * static_cast<float>(q[k] - Form::kZero);
      if constexpr (Form::kHasMinimum) values[k] += minimum;
    }
  }
}

}  // namespace
}  // namespace tensor_ops

#define SIMPLE_BLOCK_FORMAT(format, bits, has_minimum)                                         \
  SIMPLE_BLOCK_FORM(format, bits, has_minimum)                                                 \
  namespace tensor_ops {                                                                       \
  DECLARE_BLOCK_FORMAT(format, kBlockColumns, format::Form::kBytes, format::Form::Tile::bytes, \
                       dequantize_simple<format::Form>)                                        \
  }

#endif
