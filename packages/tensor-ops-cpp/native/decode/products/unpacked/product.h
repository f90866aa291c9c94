// The products of a format with tokens of two int8 terms, which int16 holds, on AVX-512 with VNNI.
// For many tokens, blocks are unpacked first.
#pragma once

#include "decode/products/unpacked/block.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Format>
TENSOR_OPS_INLINE void unpack(const Format& block,
                              UnpackedBlock<Format::kScales, Format::kHasMinimum>& to) {
  constexpr auto zero = static_cast<std::int16_t>(Format::kZero);
  constexpr std::size_t words = 2 * kDotWords / Format::kScales;
  for (std::size_t s = 0; s < Format::kScales; ++s) {
    Ints products{};
    for (std::size_t j = s * words; j < (s + 1) * words; ++j) {
      Words even, odd;
      if constexpr (Format::kLargest == 15) {
        even = block.nibble_pairs(j, 0);
        odd = block.nibble_pairs(j, 1);
      } else {
        even = even_bytes(block.word(j));
        odd = shifted_pairs(block.word(j), 8);
      }
      to.even[j] = bit_cast<Shorts>(even) - zero;
      to.odd[j] = bit_cast<Shorts>(odd) - zero;
      products = dot_shorts(products, to.even[j], to.odd[j]);
    }
    to.minus_products[s] = -bit_cast<Words>(products);
  }
  to.end = end_of<2>(block);
}

template <class Format>
void unpack_blocks(const unsigned char* tiles, std::size_t tile_bytes, std::size_t num_tiles,
                   std::size_t first_block, std::size_t num_blocks, void* to) {
  auto* next = static_cast<UnpackedBlock<Format::kScales, Format::kHasMinimum>*>(to);
  for (std::size_t b = first_block; b < first_block + num_blocks; ++b)
    for (std::size_t t = 0; t < num_tiles; ++t)
      unpack(Format(tiles + t * tile_bytes, b, 0), *next++);
}
template <class Format>
constexpr UnpackedFormat unpacked_format{unpack_blocks<Format>, Format::place};

template <class Format>
void multiply_joined_tiles(const unsigned char* tiles, std::size_t tile_bytes,
                           std::size_t num_tiles, std::size_t columns,
                           const unsigned char* prepared, std::size_t prepared_stride,
                           std::size_t count, float* sums, float* out, std::size_t out_stride) {
  using All = UnpackedProducts;
  constexpr MultiplyUnpacked All::* of_scales[2][2] = {
      {&All::one_scale, &All::one_scale_and_minimum},
      {&All::two_scales, &All::two_scales_and_minimums}};
  constexpr auto product = of_scales[Format::kScales - 1][Format::kHasMinimum];
  (unpacked_products.*product)(unpacked_format<Format>, tiles, tile_bytes, num_tiles, columns,
                               prepared, prepared_stride, count, sums, out, out_stride);
}

template <class Format>
void multiply_joined(const unsigned char* tile, std::size_t columns, const unsigned char* prepared,
                     std::size_t prepared_stride, std::size_t count, float* out,
                     std::size_t out_stride) {
  if (count < kManyTokens)
    multiply<IntegerProduct<Format, 2, PairBlock<2>>>(tile, columns, prepared, prepared_stride,
                                                      count, out, out_stride);
  else
    multiply_joined_tiles<Format>(tile, 0, 1, columns, prepared, prepared_stride, count, nullptr,
                                  out, out_stride);
}
template <class Format>
constexpr ProductKernel joined_product{int8_bytes<2, PairBlock<2>>,
                                       in_rows<prepare_int8<2, PairBlock<2>>>,
                                       multiply_joined<Format>, multiply_joined_tiles<Format>};
template <class Format>
constexpr ProductKernel int8_product<Format, 2>{int8_bytes<2>, in_rows<prepare_int8<2>>,
                                                multiply<IntegerProduct<Format, 2>>, nullptr,
                                                &joined_product<Format>};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
