// Matrix products with weights in the formats of GGML: y = W x, for the decode executor.
//
// A weight is packed once, 16 rows to a tile, in a layout that is the format's own and the same for
// every instruction-set level. The tiles of a thread lie one behind the other, so that it reads one
// sequential stream. The order of the sums depends on the format and the columns only, never on the
// number of tokens.
//
// Error of a result of K columns, against the product with the weights as the file means them,
// where u = 2^-24, nothing overflows, and no scale is below 2^-118 as only mxfp4 may have (each to
// 0.1 %):
//   float32 activations:  u (K + 2) sum(|w| |x|)
//   integer activations:  sum(|w| e) + u (K / 16 + 6) sum((|w| + 2 |m|) (|x| + e))
//   bfloat16 activations: sum(|w| e) + u (K + 2) sum(|w| (|x| + e)) + 2^-126 sum(1 + |x|)
// and K 2^-149, which matters to subnormal results, and beside bf16 weights on AMX's tiles, which
// take subnormal numbers for zero, 2^-126 sum(12 + 2 |w| + 2 |x|). For bfloat16, e is 2^-8 |x| +
// 2^-126; what is too large for bfloat16, from 2^128 (1 - 2^-9), is infinite. Else e is the error
// of an activation: 0.501 d for int8 and 0.002 d for int8x2, where d is the largest magnitude of
// the activation's block divided by 127, and 2^-142 more. m is what the format adds to all weights
// of a scale: their minimum, or 0. f8_e4m3 multiplies the sum over the columns of a scale s by it:
// that sum may not overflow either, and K 2^-149 is K 2^-141 |s|.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "declaration/shared.h"
#include "decode/program/activation_type.h"

namespace tensor_ops {

constexpr std::size_t kTileRows = 16;       // a lane of a vector is a row of the weight
constexpr std::size_t kTileAlignment = 64;  // bytes; tile sizes are multiples of it
// With this many tokens or more, several tiles are multiplied together, unless a kernel says
// otherwise.
constexpr std::size_t kManyTokens = 16;
// The number of floats in the scratch of multiply_tiles(): sums of 192 tokens and 8 tiles.
constexpr std::size_t kMostSums = 192 * 8 * kTileRows;

using decode::ActivationType;
using decode::kActivationNames;
using decode::kActivationTypes;

// The product of one weight format, one type of activations and one variant of a level. What
// prepare() writes does not depend on the format, so that matrices of several formats can share it.
struct ProductKernel {
  std::size_t (*prepared_bytes)(std::size_t columns);  // of a token; a multiple of 4
  // Converts the activations of one of the `tokens` that are multiplied together. `prepared` has
  // prepared_stride bytes for each of them, prepared_bytes() or more, and is aligned to a line.
  void (*prepare)(const float* x, std::size_t columns, unsigned char* prepared,
                  std::size_t prepared_stride, std::size_t token, std::size_t tokens);
  // out[t * out_stride + r] for the 16 rows r of the tile and each token t of all that were
  // prepared together. Prefetches ahead, in what follows the tile in memory.
  void (*multiply)(const unsigned char* tile, std::size_t columns, const unsigned char* prepared,
                   std::size_t prepared_stride, std::size_t tokens, float* out,
                   std::size_t out_stride);
  // As multiply(), with the same bits, for the rows of num_tiles tiles, which are tile_bytes apart.
  // `sums` is scratch of kMostSums floats. Null where that is not faster for many tokens.
  void (*multiply_tiles)(const unsigned char* tiles, std::size_t tile_bytes, std::size_t num_tiles,
                         std::size_t columns, const unsigned char* prepared,
                         std::size_t prepared_stride, std::size_t tokens, float* sums, float* out,
                         std::size_t out_stride) = nullptr;
  // For `several` tokens or more, which it takes prepared by its own prepare(): faster, with the
  // same bits. Null where this kernel is as fast.
  const ProductKernel* of_several = nullptr;
  std::size_t several = 2;
  // Whether what is prepared for a token lies at prepared + token * prepared_stride, the same
  // whatever the other tokens are.
  bool prepares_in_rows = true;
  std::size_t many = kManyTokens;  // from how many tokens on multiply_tiles() is faster

  bool multiplies_tiles(std::size_t tokens) const { return multiply_tiles && tokens >= many; }
  const ProductKernel& for_tokens(std::size_t tokens) const {
    const ProductKernel* kernel = this;
    while (kernel->of_several && tokens >= kernel->several) kernel = kernel->of_several;
    return *kernel;
  }
};

// Packs rows that follow one another, at most 16; the weights of rows past the end are zero.
// Prefetches what follows them.
using PackTile = void (*)(const unsigned char* first, std::size_t rows, std::size_t columns,
                          unsigned char* tile);

struct ProductTable {
  ProductKernel of[kActivationTypes];  // null pointers where a format has no such product
};

// How a file stores a row: blocks of `block_columns` columns in `block_bytes` bytes each, and how a
// tile of rows is stored in memory. Rows have whole blocks. Rows need not be aligned.
struct WeightFormat {
  const char* name;
  std::size_t block_columns, block_bytes;
  std::size_t (*tile_bytes)(std::size_t columns);
  void (*dequantize)(const unsigned char* row, std::size_t columns, float* values);
  std::vector<PackTile> pack;                 // by compiled_levels(); all write the same bytes
  std::vector<const ProductTable*> products;  // by product_variants(); null where it has none

  std::size_t row_bytes(std::size_t columns) const { return columns / block_columns * block_bytes; }
};

// Sorted by name.
TENSOR_OPS_SHARED const std::vector<const WeightFormat*>& weight_formats();
// By its name in a program, such as "q4_1"; null where there is none.
TENSOR_OPS_SHARED const WeightFormat* find_weight_format(const std::string& name);

// Some levels have products in more than one variant, since CPUs of the level differ in what they
// have for dot products.
struct ProductVariant {
  const char* name;
  std::size_t level;  // an index into compiled_levels()
  bool cpu_has;       // whether the CPU can run it, and the system has what it wants
  // Whether it is used where the CPU can run it: if it is faster than the variants before it, if
  // the environment allows it, and if the system grants it to this process, which asks for it then;
  // without `asks`, a system that was not asked yet is taken to grant it.
  bool (*may_use)(bool asks);
};

// All that are compiled in: first every level by itself, then the others, the fastest of a level
// last.
TENSOR_OPS_SHARED const std::vector<ProductVariant>& product_variants();
// The fastest variant of a level that can be used: an index into product_variants().
TENSOR_OPS_SHARED std::size_t fastest_product_variant(std::size_t level, bool asks = true);
// Whether products use the tile registers of AMX, and why not: "yes" or "no: ...".
TENSOR_OPS_SHARED std::string use_of_tiles();

// Whether the CPU adds vectors of integers beside multiplications, and not in their place.
TENSOR_OPS_SHARED bool adds_beside_multiplies();

// How lines of the stream of tiles are prefetched.
struct Prefetching {
  std::size_t ahead = 8192;   // bytes before their use
  bool is_read_once = false;  // lines bypass the outer caches
};

// For one token. It depends on the processor, which may prefetch better by itself.
TENSOR_OPS_SHARED Prefetching prefetching_of_one();

// The type in which a format can take activations: `wanted`, or int8x2 beside integers where
// bfloat16 is wanted, or float32.
ActivationType activations_for(const WeightFormat& format, ActivationType wanted);

// The kernel of the variant, or of the next slower variant of its level that has one. Its functions
// are null where the format has no product with such activations.
TENSOR_OPS_SHARED const ProductKernel& product_kernel(const WeightFormat& format,
                                                      ActivationType activations,
                                                      std::size_t variant);

}  // namespace tensor_ops
