// f32: float32. A line of a tile has a column.
#include "decode/products/format.h"

#if KERNEL_PASS

#include "decode/products/multiply.h"
#include "decode/products/pack.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct F32 {
  static constexpr std::size_t kColumns = 4;
  const unsigned char* lines;
  TENSOR_OPS_INLINE F32(const unsigned char* tile, std::size_t block, std::size_t part)
      : lines(tile + block * kColumns * kLineBytes + part * kVectorBytes) {}
  TENSOR_OPS_INLINE void prefetch() const { prefetch_lines(lines, kColumns * kLineBytes); }
  TENSOR_OPS_INLINE void columns(std::size_t, Floats (&w)[4]) const {
    for (std::size_t i = 0; i < 4; ++i) w[i] = load_vector<Floats>(lines + i * kLineBytes);
  }
};

}  // namespace

EXPORT_PACK(f32, pack_numbers<4>)
EXPORT_PRODUCTS(f32, number_product<F32>)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_WEIGHT_FORMAT(f32, 1, 4, number_tile_bytes<4>, dequantize_numbers<4, load_float>)

}  // namespace tensor_ops

#endif
