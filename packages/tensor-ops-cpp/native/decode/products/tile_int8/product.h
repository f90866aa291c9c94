// The products of a format on the tile registers of AMX, and with few tokens those of VNNI.
#pragma once

#include "decode/products/tile_int8/block.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// From this many tokens on, tiles are used. On Emerald Rapids, 4 tokens of two terms took half of
// the time that VNNI takes where a block has one scale, and those of one term 0.8 of it; 2 tokens
// took 0.8 and longer. Where a block has two scales there are twice as many tile products: they
// gain less, and nothing while another thread of the core is busy. They are on tiles all the same,
// since matrices of several formats share what is prepared.
constexpr std::size_t kTileTokens = 4;

template <class Format>
void unpack_signed(const unsigned char* tiles, std::size_t tile_bytes, std::size_t num_tiles,
                   std::size_t first_block, std::size_t num_blocks, float factor, std::size_t ahead,
                   void* to) {
  static_assert(Format::kZero <= 128 && Format::kLargest - Format::kZero <= 127, "signed bytes");
  using Bytes = Vector<std::uint8_t>;
  auto* next = static_cast<SignedBlock<Format::kScales, Format::kHasMinimum>*>(to);
  for (std::size_t b = first_block; b < first_block + num_blocks; ++b)
    for (std::size_t t = 0; t < num_tiles; ++t, ++next) {
      const Format block(tiles + t * tile_bytes, b, 0);
      block.prefetch({ahead});
      for (std::size_t j = 0; j < 2 * kDotWords; ++j)
        next->words[j] = bit_cast<Words>(bit_cast<Bytes>(block.word(j)) -
                                         static_cast<std::uint8_t>(Format::kZero));
      next->end = end_of<1>(block);
      for (Floats& scale : next->end.scale) scale *= factor;
    }
}

template <class Format, std::size_t terms>
void multiply_signed_tiles(const unsigned char* tiles, std::size_t tile_bytes,
                           std::size_t num_tiles, std::size_t columns,
                           const unsigned char* prepared, std::size_t, std::size_t tokens,
                           float* sums, float* out, std::size_t out_stride) {
  static constexpr SignedFormat format{unpack_signed<Format>, Format::place};
  using All = SignedProducts;
  constexpr MultiplySigned All::* of_scales[2][2] = {
      {&All::one_scale, &All::one_scale_and_minimum},
      {&All::two_scales, &All::two_scales_and_minimums}};
  constexpr auto product = of_scales[Format::kScales - 1][Format::kHasMinimum];
  (signed_products[terms - 1].*product)(format, tiles, tile_bytes, num_tiles, columns, prepared,
                                        tokens, sums, out, out_stride);
}
template <class Format, std::size_t terms>
void multiply_signed(const unsigned char* tile, std::size_t columns, const unsigned char* prepared,
                     std::size_t prepared_stride, std::size_t tokens, float* out,
                     std::size_t out_stride) {
  multiply_signed_tiles<Format, terms>(tile, 0, 1, columns, prepared, prepared_stride, tokens,
                                       nullptr, out, out_stride);
}

template <class Format, std::size_t terms>
constexpr ProductKernel signed_product{terms == 1 ? one_term_bytes : two_terms_bytes,
                                       terms == 1 ? prepare_one_term : prepare_two_terms,
                                       multiply_signed<Format, terms>,
                                       multiply_signed_tiles<Format, terms>,
                                       nullptr,
                                       0,
                                       false,
                                       kTileTokens};

// The kernel that VNNI has for a number of tokens. Only its functions are known when it is used.
template <const ProductTable& Vnni, std::size_t terms, std::size_t tokens>
struct VnniProduct {
  static const ProductKernel& kernel() { return Vnni.of[terms].for_tokens(tokens); }
  static std::size_t prepared_bytes(std::size_t columns) {
    return kernel().prepared_bytes(columns);
  }
  static void prepare(const float* x, std::size_t columns, unsigned char* prepared,
                      std::size_t prepared_stride, std::size_t token, std::size_t all) {
    kernel().prepare(x, columns, prepared, prepared_stride, token, all);
  }
  static void multiply(const unsigned char* tile, std::size_t columns,
                       const unsigned char* prepared, std::size_t prepared_stride,
                       std::size_t count, float* out, std::size_t out_stride) {
    kernel().multiply(tile, columns, prepared, prepared_stride, count, out, out_stride);
  }
};
template <const ProductTable& Vnni, std::size_t terms, std::size_t tokens>
constexpr ProductKernel vnni_product(const ProductKernel& of_several, std::size_t several) {
  using Product = VnniProduct<Vnni, terms, tokens>;
  return {
      Product::prepared_bytes, Product::prepare, Product::multiply, nullptr, &of_several, several};
}

template <class Format, const ProductTable& Vnni>
constexpr ProductKernel tile_product_of_term =
    vnni_product<Vnni, 1, 1>(signed_product<Format, 1>, kTileTokens);
template <class Format, const ProductTable& Vnni>
constexpr ProductKernel joined_before_tiles =
    vnni_product<Vnni, 2, 2>(signed_product<Format, 2>, kTileTokens);
template <class Format, const ProductTable& Vnni>
constexpr ProductKernel tile_product_of_terms =
    vnni_product<Vnni, 2, 1>(joined_before_tiles<Format, Vnni>, 2);

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
