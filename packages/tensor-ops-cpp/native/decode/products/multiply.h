// The products: a tile of 16 rows times the activations of some tokens. Each lane sums over the
// columns in an order that does not depend on the number of tokens.
#pragma once

#include <utility>

#include "decode/products/activations.h"
#include "decode/products/product.h"
#include "kernels/elements.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// How many tokens are taken at a time beside float32, and in how many chains of additions the sum
// of one is computed: as many as fit the 16 or 32 registers.
#if defined(__AVX512F__)
constexpr std::size_t kFloatTokens = 8, kChains = 2;
#elif defined(__AVX2__)
constexpr std::size_t kFloatTokens = 2, kChains = 2;
#elif defined(__aarch64__)
constexpr std::size_t kFloatTokens = 4, kChains = 1;
#else
constexpr std::size_t kFloatTokens = 2, kChains = 1;
#endif

// Integers beside one token are used so fast that it depends on the processor how their lines are
// prefetched: prefetching_of_one().
TENSOR_OPS_INLINE void prefetch_lines(const unsigned char* from, std::size_t bytes,
                                      Prefetching how = {}) {
  for (std::size_t i = 0; i < bytes; i += kLineBytes) {
    if (how.is_read_once)
      __builtin_prefetch(from + how.ahead + i, 0, 0);
    else
      __builtin_prefetch(from + how.ahead + i, 0, 3);
  }
}

// Prefetches what a block of several has to: its share of the lines from their common head on.
template <class Tile>
TENSOR_OPS_INLINE void prefetch_share(const unsigned char* head, std::size_t block,
                                      Prefetching how) {
  constexpr std::size_t lines = Tile::kBytes / kLineBytes;
  constexpr std::size_t most = (lines + Tile::kBlocks - 1) / Tile::kBlocks;
  prefetch_lines(head + block * lines / Tile::kBlocks * kLineBytes, most * kLineBytes, how);
}

// Calls body(i) for each i < count, where i is a constant. A body that needs it in a constant
// expression takes `auto`; others take std::size_t, so that they are compiled once and not `count`
// times. TENSOR_OPS_UNROLLED_FOR compiles sooner; GCC finds more registers for some of these
// bodies.
template <class Body, std::size_t... I>
TENSOR_OPS_INLINE void repeat(Body body, std::index_sequence<I...>) {
  (body(std::integral_constant<std::size_t, I>{}), ...);
}
template <std::size_t count, class Body>
TENSOR_OPS_INLINE void repeat(Body body) {
  repeat(body, std::make_index_sequence<count>());
}

// A subtraction of 0 changes no number, so that none is compiled; an addition to 0 changes -0.
TENSOR_OPS_INLINE Floats broadcast(float x) { return x - Floats{}; }

// The tokens that a kernel takes at a time, and their results.
struct Tokens {
  const unsigned char* prepared;
  std::size_t prepared_stride;
  float* out;
  std::size_t out_stride;

  TENSOR_OPS_INLINE void skip(std::size_t tokens) {
    prepared += tokens * prepared_stride;
    out += tokens * out_stride;
  }

  TENSOR_OPS_INLINE const unsigned char* at(std::size_t token) const {
    return prepared + token * prepared_stride;
  }
  TENSOR_OPS_INLINE Floats load(std::size_t token, std::size_t part) const {
    return load_vector<Floats>(out + token * out_stride + part * kLanes<float>);
  }
  TENSOR_OPS_INLINE void store(std::size_t token, std::size_t part, Floats sums) const {
    store_vector(out + token * out_stride + part * kLanes<float>, sums);
  }
};

// A part of a block of 32 columns of a tile. A block format derives from it:
//   kLargest, kZero: its weights are integers from 0 to kLargest, less kZero, times a scale
//   kScales: how many scales the columns of a block have, 1 or 2
//   word(j): the integers of columns 4j to 4j + 3
//   scale[], minimum[]: Floats of each scale; a minimum is added to weights where kHasMinimum
template <class Tile>
class TileBlock {
 public:
  TENSOR_OPS_INLINE TileBlock(const unsigned char* tile, std::size_t block, std::size_t part)
      : halves_(tile + Tile::halves_at(block) + part * kVectorBytes / 2),
        lines_(tile + Tile::lines_at(block) + part * kVectorBytes) {}
  TENSOR_OPS_INLINE void prefetch(Prefetching how = {}) const {
    prefetch_lines(halves_, Tile::kHalfBytes, how);
    prefetch_lines(lines_, Tile::kLines * kLineBytes, how);
  }
  // The offset in a tile, in bytes, at which a block begins. Blocks with a common head begin with
  // it.
  static constexpr std::size_t place(std::size_t block) { return Tile::halves_at(block); }
  // The integers of columns 4j and 4j + 2, or of 4j + 1 and 4j + 3, in 16 bits each.
  TENSOR_OPS_INLINE Words nibble_pairs(std::size_t j, std::size_t odd) const {
    const Words pairs = shifted_pairs(line(j % kDotWords), j / kDotWords * 4 + odd * 8);
    return j >= kDotWords && odd ? pairs : pairs & 0x000F000Fu;
  }

 protected:
  TENSOR_OPS_INLINE Floats half(std::size_t index) const {
    return Float16::widen(load_vector<Halves>(halves_ + index * kLineBytes / 2));
  }
  TENSOR_OPS_INLINE Words line(std::size_t index) const {
    return load_vector<Words>(lines_ + index * kLineBytes);
  }
  // Line j has columns 4j to 4j + 3 in its low nibbles, and columns 4j + 16 to 4j + 19 in its high
  // nibbles.
  template <bool has_other_masks = (Tile::kLines > kDotWords)>
  TENSOR_OPS_INLINE Words nibbles(std::size_t word) const {
    const Words both = word < kDotWords ? line(word) : line(word - kDotWords) >> 4;
    return has_other_masks ? masked<0x0F0F0F0F>(both) : both & 0x0F0F0F0Fu;
  }
  // Some bits of each integer of a word, from bit `first` on. 8 / bits words share a line, the
  // first word in the lowest bits.
  template <std::size_t bits, std::size_t first = 4>
  TENSOR_OPS_INLINE Words high(std::size_t first_line, std::size_t word) const {
    constexpr std::size_t together = 8 / bits;
    const Words shared = line(first_line + word / together);
    const std::size_t at = word % together * bits;
    return masked<((1u << bits) - 1) * 0x01010101u << first>(at < first ? shared << (first - at)
                                                                        : shared >> (at - first));
  }
  // The two bytes that row r has at half line `index`.
  TENSOR_OPS_INLINE Words pair(std::size_t index) const {
    return widened(load_vector<Halves>(halves_ + index * kLineBytes / 2));
  }

  const unsigned char *halves_, *lines_;
};

TENSOR_OPS_INLINE Floats to_floats(Words small) {
  return __builtin_convertvector(bit_cast<Ints>(small), Floats);
}

// A block of a K format. A scale or minimum is the product of a half-precision number, which 256
// columns share, and a small integer. The product is exact in float32. It is computed where it is
// used, since the integer takes a quarter of the memory.
template <class Tile>
class SuperBlock : public TileBlock<Tile> {
 public:
  TENSOR_OPS_INLINE SuperBlock(const unsigned char* tile, std::size_t block, std::size_t part)
      : TileBlock<Tile>(tile, block, part),
        index_(block % Tile::kBlocks),
        integers_(this->pair(Tile::kPairs + index_)) {}
  TENSOR_OPS_INLINE void prefetch(Prefetching how = {}) const {
    prefetch_share<Tile>(this->halves_, index_, how);
  }

 protected:
  TENSOR_OPS_INLINE Words low_integers() const { return integers_ << 24 >> 24; }
  TENSOR_OPS_INLINE Words high_integers() const { return integers_ >> 8; }
  // The same with signs.
  TENSOR_OPS_INLINE Words low_signed() const { return shifted_signed<24>(); }
  TENSOR_OPS_INLINE Words high_signed() const { return shifted_signed<16>(); }

 private:
  template <int up>
  TENSOR_OPS_INLINE Words shifted_signed() const {
    return bit_cast<Words>(bit_cast<Ints>(integers_ << up) >> 24);
  }

  const std::size_t index_;
  const Words integers_;
};

// A block format beside float32 activations: the weights as the file means them.
template <class Format>
struct Dequantized : Format {
  static constexpr std::size_t kColumns = kBlockColumns;
  using Format::Format;
  TENSOR_OPS_INLINE void columns(std::size_t j, Floats (&w)[4]) const {
    const Words word = this->word(j);
    for (std::size_t i = 0; i < 4; ++i) {
      const Ints value = bit_cast<Ints>(word >> (8 * i) & 255u) - Format::kZero;
      w[i] = __builtin_convertvector(value, Floats) * this->scale[j * Format::kScales / 8];
      if constexpr (Format::kHasMinimum) w[i] += this->minimum[j * Format::kScales / 8];
    }
  }
};

// Products with float32 activations. A format has kColumns columns in a block; columns(j, w) gives
// the weights of columns 4j to 4j + 3.
template <class Format>
struct FloatProduct {
  static constexpr std::size_t kTokens = kFloatTokens;

  // For levels whose vectors are as long as a line.
  template <std::size_t count>
  static void run_pair(const unsigned char* tile, std::size_t second, std::size_t columns,
                       Tokens tokens) {
    Floats sums[count][2][kChains] = {};
    for (std::size_t k = 0, b = 0; k < columns; k += Format::kColumns, ++b) {
      const Format blocks[] = {Format(tile, b, 0), Format(tile + second, b, 0)};
      for (const Format& block : blocks) block.prefetch();
      for (std::size_t j = 0; j < Format::kColumns / 4; ++j) {
        Floats w[2][4];
        for (std::size_t i = 0; i < 2; ++i) blocks[i].columns(j, w[i]);
        TENSOR_OPS_UNROLLED_FOR (token, count) {
          const auto* x = reinterpret_cast<const float*>(tokens.at(token)) + k + 4 * j;
          TENSOR_OPS_UNROLLED_FOR (column, 4) {
            const Floats activation = broadcast(x[column]);
            for (std::size_t i = 0; i < 2; ++i) {
              Floats& sum = sums[token][i][column % kChains];
              sum = fma(w[i][column], activation, sum);
            }
          }
        }
      }
    }
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t i = 0; i < 2; ++i)
        tokens.store(t, i, sums[t][i][0] + sums[t][i][kChains - 1]);
  }

  template <std::size_t count>
  static void run(const unsigned char* tile, std::size_t columns, Tokens tokens) {
    Floats sums[count][kParts][kChains] = {};
    for (std::size_t k = 0, b = 0; k < columns; k += Format::kColumns, ++b)
      repeat<kParts>([&](std::size_t part) TENSOR_OPS_INLINE_LAMBDA {
        const Format block(tile, b, part);
        if (part == 0) block.prefetch();
        for (std::size_t j = 0; j < Format::kColumns / 4; ++j) {
          Floats w[4];
          block.columns(j, w);
          repeat<count>([&](std::size_t token) TENSOR_OPS_INLINE_LAMBDA {
            const auto* x = reinterpret_cast<const float*>(tokens.at(token)) + k + 4 * j;
            for (std::size_t i = 0; i < 4; ++i) {
              Floats& sum = sums[token][part][i % kChains];
              sum = fma(w[i], broadcast(x[i]), sum);
            }
          });
        }
      });
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t p = 0; p < kParts; ++p)
        tokens.store(t, p, kChains == 1 ? sums[t][p][0] : sums[t][p][0] + sums[t][p][kChains - 1]);
  }
};

template <class Product, std::size_t count>
TENSOR_OPS_INLINE void multiply_tokens(const unsigned char* tile, std::size_t columns,
                                       Tokens tokens, std::size_t remaining) {
  for (; remaining >= count; remaining -= count) {
    Product::template run<count>(tile, columns, tokens);
    tokens.skip(count);
  }
  if constexpr (count == 4) {  // a token with two guesses
    if (remaining == 3) return Product::template run<3>(tile, columns, tokens);
  }
  if constexpr (count > 1) multiply_tokens<Product, count / 2>(tile, columns, tokens, remaining);
}

template <class Product>
void multiply(const unsigned char* tile, std::size_t columns, const unsigned char* prepared,
              std::size_t prepared_stride, std::size_t tokens, float* out, std::size_t out_stride) {
  multiply_tokens<Product, Product::kTokens>(tile, columns,
                                             {prepared, prepared_stride, out, out_stride}, tokens);
}

// An activation is loaded once for two tiles. Their sums for this many tokens fill the registers.
constexpr std::size_t kPairTokens = 4;

template <class Product>
void multiply_tiles(const unsigned char* tiles, std::size_t tile_bytes, std::size_t num_tiles,
                    std::size_t columns, const unsigned char* prepared, std::size_t prepared_stride,
                    std::size_t count, float*, float* out, std::size_t out_stride) {
  const auto multiply_pair = [&](const unsigned char* tile, Tokens tokens) {
    std::size_t left = count;
    for (; left >= kPairTokens; left -= kPairTokens) {
      Product::template run_pair<kPairTokens>(tile, tile_bytes, columns, tokens);
      tokens.skip(kPairTokens);
    }
    multiply_tokens<Product, kPairTokens / 2>(tile, columns, tokens, left);
    tokens.out += kTileRows;
    multiply_tokens<Product, kPairTokens / 2>(tile + tile_bytes, columns, tokens, left);
  };
  std::size_t t = 0;
  for (; t + 2 <= num_tiles; t += 2)
    multiply_pair(tiles + t * tile_bytes,
                  {prepared, prepared_stride, out + t * kTileRows, out_stride});
  if (t < num_tiles)
    multiply<Product>(tiles + t * tile_bytes, columns, prepared, prepared_stride, count,
                      out + t * kTileRows, out_stride);
}

template <class Format>
constexpr ProductKernel float_product{float_bytes, in_rows<prepare_floats>,
                                      multiply<FloatProduct<Format>>};
// For formats of numbers without blocks, whose weights take few registers.
#if defined(__AVX512F__)
template <class Format>
constexpr ProductKernel number_product{float_bytes, in_rows<prepare_floats>,
                                       multiply<FloatProduct<Format>>,
                                       multiply_tiles<FloatProduct<Format>>};
#else
template <class Format>
constexpr ProductKernel number_product = float_product<Format>;
#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
