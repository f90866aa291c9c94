// Products of integer weights on the tile registers of AMX, for many tokens: 16 rows of the weight
// times 16 tokens at once. The integers are exact, and the rest is done as in IntegerProduct, so
// that the results have the same bits as those of the variant that takes the remaining tokens.
#pragma once

#include "decode/products/integer_product.h"
#include "decode/products/tile_unit.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Format, std::size_t terms>
struct TileProduct {
  using Vectors = IntegerProduct<Format, terms>;
  using Activations = Int8Block<terms>;
  static constexpr std::size_t kTileTokens = 16, kMostGroups = 2;  // groups of tokens
  static constexpr std::size_t kScales = Format::kScales;
  static constexpr std::size_t kColumns = kBlockColumns / kScales;  // of a scale
  // The registers: the sums of each group and term, then the activations of each term.
  static constexpr int kSums = 0, kX = 4, kWeights = 6;

  static constexpr TileShapes shapes() {
    TileShapes shapes;
    for (int i = 0; i < 4; ++i) shapes.set(kSums + i, kTileTokens, kLineBytes);
    for (int i = 0; i < 2; ++i) shapes.set(kX + i, kTileTokens, kColumns);
    shapes.set(kWeights, kColumns / 4, kLineBytes);
    return shapes;
  }

  // Sums over the columns of each scale of a block, by term, token and row.
  using Sums = Ints[kScales][terms][kMostGroups * kTileTokens];

  template <std::size_t groups>
  static TENSOR_OPS_INLINE void sum_block(const Words* words, std::size_t b, Tokens tokens,
                                          Sums& sums) {
    for (std::size_t s = 0; s < kScales; ++s) {
      tile_load<kWeights>(words + s * kColumns / 4, kLineBytes);
      repeat<groups>([&](auto group) TENSOR_OPS_INLINE_LAMBDA {
        constexpr std::size_t first = group * kTileTokens;
        const Activations& x = reinterpret_cast<const Activations*>(tokens.at(first))[b];
        repeat<terms>([&](auto term) TENSOR_OPS_INLINE_LAMBDA {
          constexpr int at = kSums + static_cast<int>(group * terms + term);
          constexpr int activations = kX + static_cast<int>(term);
          tile_load<activations>(x.q[term] + s * kColumns, tokens.prepared_stride);
          tile_zero<at>();
          tile_add_products<at, activations, kWeights>();
          tile_store<at>(&sums[s][term][first], kLineBytes);
        });
      });
    }
  }

  template <std::size_t groups>
  static void run(const unsigned char* tile, std::size_t columns, Tokens tokens) {
    constexpr std::size_t count = groups * kTileTokens;
    Floats results[count] = {};
    Words words[2 * kDotWords];
    Sums sums;
    for (std::size_t b = 0; b < columns / kBlockColumns; ++b) {
      const Format block(tile, b, 0);
      block.prefetch();
      for (std::size_t j = 0; j < 2 * kDotWords; ++j) words[j] = block.word(j);
      sum_block<groups>(words, b, tokens, sums);
      for (std::size_t t = 0; t < count; ++t) {
        const Activations& x = reinterpret_cast<const Activations*>(tokens.at(t))[b];
        Vectors::add_block(results[t], block, x,
                           [&](std::size_t term, std::size_t s) TENSOR_OPS_INLINE_LAMBDA {
                             const Ints sum = sums[s][term][t] + Vectors::start(x, term, s);
                             return __builtin_convertvector(sum, Floats);
                           });
      }
    }
    for (std::size_t t = 0; t < count; ++t) tokens.store(t, 0, results[t]);
  }
};

// `Rest` has the kernels of the variant that takes the remaining tokens, which fill no tile.
template <class Format, std::size_t terms, const ProductTable& Rest>
void multiply_by_tiles(const unsigned char* tile, std::size_t columns,
                       const unsigned char* prepared, std::size_t prepared_stride,
                       std::size_t count, float* out, std::size_t out_stride) {
  using Product = TileProduct<Format, terms>;
  static constexpr TileShapes shapes = Product::shapes();
  constexpr std::size_t one = Product::kTileTokens, most = Product::kMostGroups * one;
  Tokens tokens{prepared, prepared_stride, out, out_stride};
  if (count >= one) {
    tile_configure(shapes);
    for (; count >= most; count -= most) {
      Product::template run<Product::kMostGroups>(tile, columns, tokens);
      tokens.skip(most);
    }
    for (; count >= one; count -= one) {
      Product::template run<1>(tile, columns, tokens);
      tokens.skip(one);
    }
    tile_release();
  }
  if (count > 0)
    Rest.of[terms].multiply(tile, columns, tokens.prepared, prepared_stride, count, tokens.out,
                            out_stride);
}

template <class Format, std::size_t terms, const ProductTable& Rest>
constexpr ProductKernel tile_product{int8_bytes<terms>, in_rows<prepare_int8<terms>>,
                                     multiply_by_tiles<Format, terms, Rest>};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
