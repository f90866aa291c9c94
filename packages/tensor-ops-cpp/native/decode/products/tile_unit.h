// The instructions of AMX that products use: the tile registers of a thread, by number. Compiled
// with TENSOR_OPS_EMULATE_TILES they are plain C++ instead, for tests on processors without AMX.
#pragma once

#include "kernels/vector.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Operand of the instruction that configures the tiles.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr void set(std::size_t tile, std::uint8_t tile_rows, std::uint16_t bytes) {
    rows[tile] = tile_rows;
    row_bytes[tile] = bytes;
  }
};
static_assert(sizeof(TileShapes) == 64);

#if defined(TENSOR_OPS_EMULATE_TILES)

struct TileUnit {
  TileShapes shapes;
  unsigned char data[8][16][64];
};
thread_local TileUnit unit{};

inline void require(bool is_as_the_processor_requires) {
  if (!is_as_the_processor_requires) __builtin_trap();
}

inline void tile_configure(const TileShapes& shapes) {
  require(shapes.palette == 1 && shapes.start_row == 0);
  for (std::size_t t = 0; t < 16; ++t)
    require(t < 8 ? shapes.rows[t] <= 16 && shapes.row_bytes[t] <= 64
                  : !shapes.rows[t] && !shapes.row_bytes[t]);
  unit = {shapes, {}};
}
inline void tile_release() { unit = {}; }

template <int tile>
void tile_zero() {
  require(unit.shapes.rows[tile]);
  __builtin_memset(unit.data[tile], 0, sizeof unit.data[tile]);
}
template <int tile, std::size_t offset = 0>
void tile_load(const void* from, std::size_t stride) {
  tile_zero<tile>();
  for (std::size_t r = 0; r < unit.shapes.rows[tile]; ++r)
    __builtin_memcpy(unit.data[tile][r],
                     static_cast<const unsigned char*>(from) + offset + r * stride,
                     unit.shapes.row_bytes[tile]);
}
template <int tile, std::size_t offset = 0>
void tile_store(void* to, std::size_t stride) {
  for (std::size_t r = 0; r < unit.shapes.rows[tile]; ++r)
    __builtin_memcpy(static_cast<unsigned char*>(to) + offset + r * stride, unit.data[tile][r],
                     unit.shapes.row_bytes[tile]);
}
// The shapes of the unit, if they are those of a product.
template <int sums, int x, int w>
const TileShapes& shapes_of_product() {
  const TileShapes& shapes = unit.shapes;
  require(shapes.rows[sums] == shapes.rows[x] && shapes.rows[w] * 4 == shapes.row_bytes[x] &&
          shapes.row_bytes[sums] == shapes.row_bytes[w]);
  return shapes;
}
// Adds products to each word of `sums`: signed bytes of its row of `x` times those of its column of
// `w`.
template <int sums, int x, int w>
void tile_add_products() {
  const TileShapes& shapes = shapes_of_product<sums, x, w>();
  for (std::size_t m = 0; m < shapes.rows[sums]; ++m)
    for (std::size_t n = 0; n < shapes.row_bytes[sums] / 4; ++n) {
      std::int32_t sum;
      __builtin_memcpy(&sum, unit.data[sums][m] + 4 * n, 4);
      for (std::size_t k = 0; k < shapes.row_bytes[x]; ++k)
        sum += static_cast<std::int8_t>(unit.data[x][m][k]) *
               static_cast<std::int8_t>(unit.data[w][k / 4][4 * n + k % 4]);
      __builtin_memcpy(unit.data[sums][m] + 4 * n, &sum, 4);
    }
}

// A subnormal number is zero to the unit.
inline float flushed(float x) {
  return bit_cast<std::uint32_t>(x) << 1 < 0x01000000u ? __builtin_copysignf(0.0f, x) : x;
}
inline float bfloat16_at(const unsigned char* at) {
  std::uint16_t x;
  __builtin_memcpy(&x, at, sizeof x);
  return flushed(bit_cast<float>(static_cast<std::uint32_t>(x) << 16));
}
// The same of pairs of bfloat16, as Intel defines it: the products of even and of odd columns are
// summed apart, each fused and rounded, and their sum is added to the float32 that is there.
template <int sums, int x, int w>
void tile_add_bfloat16_products() {
  const TileShapes& shapes = shapes_of_product<sums, x, w>();
  for (std::size_t m = 0; m < shapes.rows[sums]; ++m)
    for (std::size_t n = 0; n < shapes.row_bytes[sums] / 4; ++n) {
      float parts[2] = {};
      for (std::size_t k = 0; k < shapes.row_bytes[x] / 2; ++k)
        parts[k % 2] = flushed(__builtin_fmaf(bfloat16_at(unit.data[x][m] + 2 * k),
                                              bfloat16_at(unit.data[w][k / 2] + 4 * n + k % 2 * 2),
                                              parts[k % 2]));
      float sum;
      __builtin_memcpy(&sum, unit.data[sums][m] + 4 * n, 4);
      sum = flushed(flushed(sum) + flushed(parts[0] + parts[1]));
      __builtin_memcpy(unit.data[sums][m] + 4 * n, &sum, 4);
    }
}

#else

// Constant offsets are part of the instructions, so that an address has one register for several.
// Assembly instead of intrinsics, since some of those are macros that take no template constant,
// and do not tell the compiler that memory is read and written.
TENSOR_OPS_INLINE void tile_configure(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}
TENSOR_OPS_INLINE void tile_release() { asm volatile("tilerelease"); }

template <int tile>
TENSOR_OPS_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
template <int tile, std::size_t offset = 0>
TENSOR_OPS_INLINE void tile_load(const void* from, std::size_t stride) {
  asm volatile("tileloadd %c3(%0,%1,1), %%tmm%c2"
               :
               : "r"(from), "r"(stride), "i"(tile), "i"(offset)
               : "memory");
}
template <int tile, std::size_t offset = 0>
TENSOR_OPS_INLINE void tile_store(void* to, std::size_t stride) {
  asm volatile("tilestored %%tmm%c2, %c3(%0,%1,1)"
               :
               : "r"(to), "r"(stride), "i"(tile), "i"(offset)
               : "memory");
}
template <int sums, int x, int w>
TENSOR_OPS_INLINE void tile_add_products() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(x), "i"(w));
}
template <int sums, int x, int w>
TENSOR_OPS_INLINE void tile_add_bfloat16_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(x), "i"(w));
}

#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
