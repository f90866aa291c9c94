// bf16: the upper halves of float32. A line of a tile has two columns, which take turns.
#include "decode/products/format.h"

#if KERNEL_PASS

#if defined(TENSOR_OPS_TILES)
#include "decode/products/tile_bfloat16.h"
#else
#include "decode/products/bfloat16.h"
#include "decode/products/pack.h"
#endif

namespace tensor_ops::TENSOR_OPS_LEVEL {

#if defined(TENSOR_OPS_TILES)

EXPORT_PRODUCTS(bf16, tile_bfloat16_product<3>, {}, {}, tile_bfloat16_product<1>)

#else

namespace {

struct BF16 {
  static constexpr std::size_t kColumns = 4;
  const unsigned char* lines;
  TENSOR_OPS_INLINE BF16(const unsigned char* tile, std::size_t block, std::size_t part)
      : lines(tile + block * kColumns * kLineBytes / 2 + part * kVectorBytes) {}
  TENSOR_OPS_INLINE void prefetch() const { prefetch_lines(lines, kColumns * kLineBytes / 2); }
  TENSOR_OPS_INLINE void columns(std::size_t, Floats (&w)[4]) const {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto pair = BFloat16::widen_pair(load_vector<Words>(lines + i * kLineBytes));
      w[2 * i] = pair.hi;
      w[2 * i + 1] = pair.lo;
    }
  }
};

}  // namespace

EXPORT_PACK(bf16, pack_numbers<2, 2>)
EXPORT_PRODUCTS(bf16, number_product<BF16>, {}, {}, bfloat16_product<BF16>)

#endif

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_BF16_FORMAT(bf16, 1, 2, number_tile_bytes<2>, dequantize_numbers<2, load_bfloat16>)

}  // namespace tensor_ops

#endif
