// Blocks of weights that are unpacked to signed bytes, for products on the tile registers of AMX.
// Several formats have the same blocks, so that multiply.cpp is compiled once for all of them.
#pragma once

#include "decode/products/integer_product.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// A block of 32 columns of a tile: signed weights, from which the zero point is subtracted, so that
// sums need no correction, and what ends the block.
template <std::size_t scales, bool has_minimum>
struct alignas(kLineBytes) SignedBlock {
  Words words[2 * kDotWords];
  BlockEnd<scales, has_minimum> end;
};

}  // namespace

// The function that unpacks the blocks of a format's tiles.
struct SignedFormat {
  // num_blocks blocks of each of num_tiles tiles, which are tile_bytes apart: first_block of every
  // tile, then the next block of every tile. `to` is an array of SignedBlock, whose scales are
  // those of the weights times `factor`. Prefetches what lies `ahead` bytes behind each block.
  void (*unpack)(const unsigned char* tiles, std::size_t tile_bytes, std::size_t num_tiles,
                 std::size_t first_block, std::size_t num_blocks, float factor, std::size_t ahead,
                 void* to);
  // The offset in a tile, in bytes, at which a block begins.
  std::size_t (*place)(std::size_t block);
};

// As ProductKernel::multiply_tiles(), of activations that prepare_one_term() or prepare_two_terms()
// prepared. `sums` may be null for one tile.
using MultiplySigned = void (*)(const SignedFormat& format, const unsigned char* tiles,
                                std::size_t tile_bytes, std::size_t num_tiles, std::size_t columns,
                                const unsigned char* prepared, std::size_t tokens, float* sums,
                                float* out, std::size_t out_stride);
struct SignedProducts {
  MultiplySigned one_scale, one_scale_and_minimum, two_scales, two_scales_and_minimums;
};
// With one and with two terms.
extern const SignedProducts signed_products[2];

// ProductKernel::prepared_bytes() and prepare(), with one and with two terms.
std::size_t one_term_bytes(std::size_t columns);
std::size_t two_terms_bytes(std::size_t columns);
void prepare_one_term(const float* x, std::size_t columns, unsigned char* prepared,
                      std::size_t prepared_stride, std::size_t token, std::size_t tokens);
void prepare_two_terms(const float* x, std::size_t columns, unsigned char* prepared,
                       std::size_t prepared_stride, std::size_t token, std::size_t tokens);

}  // namespace tensor_ops::TENSOR_OPS_LEVEL
