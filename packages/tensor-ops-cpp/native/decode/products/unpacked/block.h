// Blocks of weights that are unpacked to int16 once, for all tokens that are multiplied by them.
// Several formats have the same blocks, so that multiply.cpp is compiled once for all of them.
#pragma once

#include "decode/products/integer_product.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// A block of 32 columns of a tile, with the zero point subtracted from its weights.
template <std::size_t scales, bool has_minimum>
struct UnpackedBlock {
  // Columns 0 and 2 of every four, and columns 1 and 3.
  Shorts even[2 * kDotWords], odd[2 * kDotWords];
  Words minus_products[scales];  // of columns 2i and 2i + 1, summed over the columns of a scale
  BlockEnd<scales, has_minimum> end;
};

}  // namespace

// The function that unpacks the blocks of a format's tiles.
struct UnpackedFormat {
  // num_blocks blocks of each of num_tiles tiles, which are tile_bytes apart: first_block of every
  // tile, then the next block of every tile. `to` is an array of UnpackedBlock.
  void (*unpack)(const unsigned char* tiles, std::size_t tile_bytes, std::size_t num_tiles,
                 std::size_t first_block, std::size_t num_blocks, void* to);
  // The offset in a tile, in bytes, at which a block begins.
  std::size_t (*place)(std::size_t block);
};

// As ProductKernel::multiply_tiles(), of activations that are PairBlock<2>. The sums between groups
// of blocks are in the results where `sums` is null.
using MultiplyUnpacked = void (*)(const UnpackedFormat& format, const unsigned char* tiles,
                                  std::size_t tile_bytes, std::size_t num_tiles,
                                  std::size_t columns, const unsigned char* prepared,
                                  std::size_t prepared_stride, std::size_t count, float* sums,
                                  float* out, std::size_t out_stride);
struct UnpackedProducts {
  MultiplyUnpacked one_scale, one_scale_and_minimum, two_scales, two_scales_and_minimums;
};
extern const UnpackedProducts unpacked_products;

}  // namespace tensor_ops::TENSOR_OPS_LEVEL
