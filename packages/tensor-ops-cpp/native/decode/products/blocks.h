// The products of a block format in every variant that has it, and how a level packs its tiles.
// format::Form says how a file has its blocks; a layout that several formats share has none.
#pragma once

#include "decode/products/integer_product.h"

#if defined(__AVX512VNNI__)
#include "decode/products/unpacked/product.h"
#endif

#if defined(TENSOR_OPS_TILES)

#include "decode/products/tile_int8/product.h"

#define EXPORT_TILE_PRODUCTS(format, Format)                                                   \
  }                                                                                            \
  namespace tensor_ops::x86_64_v4_vnni {                                                       \
  extern const ProductTable format##_products;                                                 \
  }                                                                                            \
  namespace tensor_ops::TENSOR_OPS_LEVEL {                                                     \
  EXPORT_PRODUCTS(format, {}, tile_product_of_term<Format, x86_64_v4_vnni::format##_products>, \
                  tile_product_of_terms<Format, x86_64_v4_vnni::format##_products>)

#elif defined(TENSOR_OPS_MATRIX_INT8)

#include "decode/products/matrix_int8.h"

#define EXPORT_TILE_PRODUCTS(format, Format) \
  EXPORT_PRODUCTS(format, {}, matrix_product_of_term<Format>, matrix_product_of_terms<Format>)

#elif defined(TENSOR_OPS_INTEGERS_ONLY)

// Products with float32 activations are those of the level.
#define EXPORT_TILE_PRODUCTS(format, Format) \
  EXPORT_PRODUCTS(format, {}, int8_product<Format, 1>, int8_product<Format, 2>)

#else

#include "decode/products/pack.h"

#define PACKS_TILES 1

#define EXPORT_TILE_PRODUCTS(format, Format)                                           \
  EXPORT_PRODUCTS(format, float_product<Dequantized<Format>>, int8_product<Format, 1>, \
                  int8_product<Format, 2>)

#endif

#if PACKS_TILES
#define EXPORT_BLOCK_PRODUCTS(format, Format)    \
  EXPORT_PACK(format, pack_blocks<format::Form>) \
  EXPORT_TILE_PRODUCTS(format, Format)
#else
#define EXPORT_BLOCK_PRODUCTS(format, Format) EXPORT_TILE_PRODUCTS(format, Format)
#endif
