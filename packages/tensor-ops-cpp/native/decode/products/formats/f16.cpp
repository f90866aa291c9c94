// f16: IEEE binary16. A line of a tile has two columns, one after the other.
#include "decode/products/format.h"

#if KERNEL_PASS

#include "decode/products/multiply.h"
#include "decode/products/pack.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct F16 {
  static constexpr std::size_t kColumns = 4;
  const unsigned char* halves_;
  TENSOR_OPS_INLINE F16(const unsigned char* tile, std::size_t block, std::size_t part)
      : halves_(tile + block * kColumns * kLineBytes / 2 + part * kVectorBytes / 2) {}
  TENSOR_OPS_INLINE void prefetch() const { prefetch_lines(halves_, kColumns * kLineBytes / 2); }
  TENSOR_OPS_INLINE void columns(std::size_t, Floats (&w)[4]) const {
    for (std::size_t i = 0; i < 4; ++i)
      w[i] = Float16::widen(load_vector<Halves>(halves_ + i * kLineBytes / 2));
  }
};

}  // namespace

EXPORT_PACK(f16, pack_numbers<2>)
EXPORT_PRODUCTS(f16, number_product<F16>)

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_WEIGHT_FORMAT(f16, 1, 2, number_tile_bytes<2>, dequantize_numbers<2, load_half>)

}  // namespace tensor_ops

#endif
