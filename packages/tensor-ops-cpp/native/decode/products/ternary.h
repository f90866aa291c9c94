// The formats tq1_0 and tq2_0: 256 columns share a half-precision d; a weight is d (q - 1) with q
// from 0 to 2, or to 3 in tq2_0. A tile has 2 bits for each, and layouts/ternary.cpp its products.
#pragma once

#include "decode/products/format.h"
#include "decode/products/unpack.h"

namespace tensor_ops {
namespace {

// What the Form of such a format derives from; it has unpack() itself.
template <std::size_t bytes>
struct TernaryForm {
  using Tile = SuperBlockTile<2, false>;
  static constexpr std::size_t kColumns = kSuperColumns, kBits = 2, kBytes = bytes, kWordsAt = 0;
  static constexpr std::size_t kScale = bytes - 2;

  template <class Block, class Lines>
  static UNPACK_INLINE void set_head(const Block&, const Lines& lines) {
    lines.copy(0, kScale);
    lines.set(1, typename Block::Word{});
  }
};

}  // namespace
}  // namespace tensor_ops

#if KERNEL_PASS

#include "decode/products/pack.h"

#define TERNARY_FORMAT(format)                               \
  namespace tensor_ops::TENSOR_OPS_LEVEL {                   \
  EXPORT_PACK(format, pack_blocks<tensor_ops::format::Form>) \
  }

#else

namespace tensor_ops {
namespace {

template <class Form>
void dequantize_ternary(const unsigned char* row, std::size_t columns, float* values) {
  for (; columns; columns -= kSuperColumns, row += Form::kBytes) {
    const float d = load_half(row + Form::kScale);
    for (std::size_t b = 0; b < kSuperColumns / kBlockColumns; ++b) {
      const Integers<Form> q(row, b);
      for (std::size_t k = 0; k < kBlockColumns; ++k) *values++ = d * static_cast<float>(q[k] - 1);
    }
  }
}

}  // namespace
}  // namespace tensor_ops

#define TERNARY_FORMAT(format)                                                          \
  namespace tensor_ops {                                                                \
  DECLARE_FORMAT_OF_LAYOUT(format, ternary, kSuperColumns, format::Form::kBytes,        \
                           format::Form::Tile::bytes, dequantize_ternary<format::Form>) \
  }

#endif
