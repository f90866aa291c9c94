// Included by every file of formats/. It is compiled once per variant, with TENSOR_OPS_LEVEL
// naming the variant's namespace, for its kernels, and once at the baseline for its declaration:
//
//     #include "decode/products/format.h"
//     #if KERNEL_PASS
//     #include "decode/products/..."
//     namespace tensor_ops::TENSOR_OPS_LEVEL { EXPORT_PACK(name, ...) EXPORT_PRODUCTS(name, ...) }
//     #else
//     namespace tensor_ops { DECLARE_WEIGHT_FORMAT(name, ...) }
//     #endif
//
// The rules of native/op.h for code of a kernel pass hold here too.
#pragma once

#include "decode/products/product.h"
#include "decode/products/tile.h"

#ifdef TENSOR_OPS_LEVEL

#define KERNEL_PASS 1

// The arguments after the name: a ProductKernel for each ActivationType, {} for none; the last ones
// may be left out.
#define EXPORT_PRODUCTS(format, ...)           \
  extern const ProductTable format##_products; \
  constexpr ProductTable format##_products = {{__VA_ARGS__}};

// The PackTile of a level; other variants have none.
#define EXPORT_PACK(format, ...)       \
  extern const PackTile format##_pack; \
  constexpr PackTile format##_pack = __VA_ARGS__;

#else

#define KERNEL_PASS 0

#include "decode/products/dequantize.h"
#include "decode/products/variants.h"

// The arguments after the name: the members of WeightFormat up to dequantize. The second and third
// form have the variants that are compiled for bf16 or for integers only, and both have those that
// are compiled for both. The last one is of a format whose tiles are multiplied by the products
// that a file of layouts/ exports.
#define DECLARE_WEIGHT_FORMAT(format, ...) \
  DECLARE_WITH_VARIANTS(format, format, TENSOR_OPS_NO, TENSOR_OPS_NO, TENSOR_OPS_NO, __VA_ARGS__)
#define DECLARE_BF16_FORMAT(format, ...) \
  DECLARE_WITH_VARIANTS(format, format, TENSOR_OPS, TENSOR_OPS_NO, TENSOR_OPS, __VA_ARGS__)
#define DECLARE_BLOCK_FORMAT(format, ...) DECLARE_FORMAT_OF_LAYOUT(format, format, __VA_ARGS__)
#define DECLARE_FORMAT_OF_LAYOUT(format, layout, ...) \
  DECLARE_WITH_VARIANTS(format, layout, TENSOR_OPS_NO, TENSOR_OPS, TENSOR_OPS, __VA_ARGS__)

#define DECLARE_WITH_VARIANTS(format, layout, BF16, BLOCKS, BOTH, ...)                      \
  TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_IMPORT_PACK, format)                                 \
  TENSOR_OPS_FOR_EACH_VARIANT(TENSOR_OPS_IMPORT_PRODUCTS, BF16##_IMPORT_PRODUCTS,           \
                              BLOCKS##_IMPORT_PRODUCTS, BOTH##_IMPORT_PRODUCTS, layout)     \
  static const WeightFormat format##_format{                                                \
      #format,                                                                              \
      __VA_ARGS__,                                                                          \
      {TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_PACK, format)},                                 \
      {TENSOR_OPS_FOR_EACH_VARIANT(TENSOR_OPS_PRODUCTS, BF16##_PRODUCTS, BLOCKS##_PRODUCTS, \
                                   BOTH##_PRODUCTS, layout)}};                              \
  static const WeightFormatRegistration format##_registration{format##_format};

#define TENSOR_OPS_IMPORT_PACK(format, level, name) \
  namespace level {                                 \
  extern const PackTile format##_pack;              \
  }
#define TENSOR_OPS_PACK(format, level, name) level::format##_pack,
#define TENSOR_OPS_IMPORT_PRODUCTS(format, variant, name) \
  namespace variant {                                     \
  extern const ProductTable format##_products;            \
  }
#define TENSOR_OPS_PRODUCTS(format, variant, name) &variant::format##_products,
#define TENSOR_OPS_NO_IMPORT_PRODUCTS(format, variant, name)
#define TENSOR_OPS_NO_PRODUCTS(format, variant, name) nullptr,

#endif
