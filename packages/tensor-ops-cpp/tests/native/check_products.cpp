// Checks the variants of products that the processor has, without Python: quick on an emulated
// processor, for which `nox -s portable -- aarch64` builds it. A token has the same bits alone and
// among others, products with integers have the same bits in every variant of a level, and
// those with bf16 weights are within the bound of product.h. The argument is the variant that must
// be the fastest one that the processor has.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "decode/products/product.h"
#include "decode/program/pieces.h"
#include "isa/float_mode.h"

namespace {

using tensor_ops::ActivationType;
using tensor_ops::kTileRows;
using tensor_ops::ProductKernel;
using tensor_ops::WeightFormat;

// How many tokens and tiles a case has, and how many tokens are multiplied at a time: any number,
// or those given.
struct Size {
  std::size_t tokens, tiles;
  std::vector<std::size_t> at_a_time;
};

std::mt19937 generator(17);

float normal() { return std::normal_distribution<float>()(generator); }

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "check_products: %s\n", what.c_str());
  std::exit(1);
}

// A small half-precision number of either sign.
void set_half(unsigned char* at) {
  at[0] = static_cast<unsigned char>(generator());
  at[1] = static_cast<unsigned char>((generator() & 0x80) | 0x20 | (generator() & 7));
}

// Any integers, with scales and minimums that are numbers.
std::vector<unsigned char> random_rows(const WeightFormat& format, std::size_t columns,
                                       std::size_t tiles) {
  std::vector<unsigned char> rows(tiles * kTileRows * format.row_bytes(columns));
  for (unsigned char& byte : rows) byte = static_cast<unsigned char>(generator());
  const std::string name = format.name;
  for (std::size_t at = 0; at < rows.size(); at += format.block_bytes) {
    if (name == "f32" || name == "bf16") {
      const float value = normal();
      const auto* const bytes = reinterpret_cast<const unsigned char*>(&value);
      std::memcpy(&rows[at], bytes + 4 - format.block_bytes, format.block_bytes);
    } else if (name == "f8_e4m3") {
      const float scale = normal();
      std::memcpy(&rows[at], &scale, sizeof scale);
    } else if (name == "mxfp4") {
      rows[at] = static_cast<unsigned char>(120 + generator() % 16);
    } else if (name == "q3_K" || name == "q6_K" || name == "tq1_0" || name == "tq2_0") {
      set_half(&rows[at + format.block_bytes - 2]);
    } else if (name == "q2_K") {
      for (std::size_t i : {80, 82}) set_half(&rows[at + i]);
    } else if (name != "nvfp4") {
      set_half(&rows[at]);
      if (name == "q4_1" || name == "q5_1" || name == "q4_K" || name == "q5_K")
        set_half(&rows[at + 2]);
    }
  }
  return rows;
}

bool are_integers(ActivationType type) {
  return type == ActivationType::kInt8 || type == ActivationType::kInt8x2;
}

// Numbers of several magnitudes, subnormal ones and zeros. Where they become integers, one is
// infinite.
std::vector<float> random_activations(ActivationType type, std::size_t columns,
                                      std::size_t tokens) {
  constexpr int exponents[] = {0, 0, 10, -20, -120, -130, -149, -300};
  std::vector<float> x(tokens * columns);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(normal(), exponents[i / 32 % 8 * (i / columns % 3) % 8]);
  if (are_integers(type)) x[tokens / 2 * columns] = HUGE_VALF;
  return x;
}

struct Aligned {
  std::vector<unsigned char> bytes;
  unsigned char* first;
  explicit Aligned(std::size_t size) : bytes(size + 2 * tensor_ops::kTileAlignment) {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
    first = bytes.data() + (0 - at) % tensor_ops::kTileAlignment;
  }
};

struct Case {
  const WeightFormat& format;
  ActivationType activations;
  std::size_t columns;
  Size size;
  std::vector<unsigned char> rows;
  std::vector<float> x;
  Aligned tiles;

  Case(const WeightFormat& format, ActivationType activations, std::size_t columns,
       const Size& size)
      : format(format),
        activations(activations),
        columns(columns),
        size(size),
        rows(random_rows(format, columns, size.tiles)),
        x(random_activations(activations, columns, size.tokens)),
        tiles(size.tiles * format.tile_bytes(columns)) {
    for (std::size_t t = 0; t < size.tiles; ++t) pack(0, kTileRows, t, tile(t));
  }

  unsigned char* tile(std::size_t t) const { return tiles.first + t * format.tile_bytes(columns); }

  // Packs the first rows of a tile as a level does it.
  void pack(std::size_t level, std::size_t present, std::size_t t, unsigned char* to) const {
    format.pack[level](&rows[t * kTileRows * format.row_bytes(columns)], present, columns, to);
  }

  // Whether a level packs the same bytes as the lowest one.
  bool packs_the_same(std::size_t level, std::size_t present) const {
    const std::size_t bytes = format.tile_bytes(columns);
    Aligned expected(bytes), packed(bytes);
    pack(0, present, 0, expected.first);
    pack(level, present, 0, packed.first);
    return std::memcmp(expected.first, packed.first, bytes) == 0;
  }

  // The products of all tokens, so many at a time, with all tiles together or one by one.
  std::vector<float> multiply(const ProductKernel& product, std::size_t at_a_time,
                              bool together = false) const {
    const ProductKernel& kernel = product.for_tokens(at_a_time);
    const std::size_t stride = tensor_ops::decode::aligned(kernel.prepared_bytes(columns));
    const std::size_t all_rows = size.tiles * kTileRows;
    const Aligned prepared(size.tokens * stride);
    std::vector<float> y(size.tokens * all_rows), sums(together ? tensor_ops::kMostSums : 0);
    for (std::size_t first = 0; first < size.tokens; first += at_a_time) {
      const std::size_t count = std::min(at_a_time, size.tokens - first);
      unsigned char* const rows = prepared.first + first * stride;
      for (std::size_t t = 0; t < count; ++t)
        kernel.prepare(&x[(first + t) * columns], columns, rows, stride, t, count);
      float* const to = &y[first * all_rows];
      if (together)
        kernel.multiply_tiles(tile(0), format.tile_bytes(columns), size.tiles, columns, rows,
                              stride, count, sums.data(), to, all_rows);
      else
        for (std::size_t t = 0; t < size.tiles; ++t)
          kernel.multiply(tile(t), columns, rows, stride, count, to + t * kTileRows, all_rows);
    }
    return y;
  }

  std::string name(const char* variant) const {
    return std::string(format.name) + " with " +
           tensor_ops::kActivationNames[static_cast<std::size_t>(activations)] + ", " +
           std::to_string(columns) + " columns, " + std::to_string(size.tiles) + " tiles, " +
           variant;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The bound of product.h for bf16 weights, on tiles or not.
bool is_within_bound(const Case& c, const std::vector<float>& y) {
  std::vector<float> w(c.columns);
  const std::size_t all_rows = c.size.tiles * kTileRows;
  for (std::size_t r = 0; r < all_rows; ++r) {
    c.format.dequantize(&c.rows[r * c.format.row_bytes(c.columns)], c.columns, w.data());
    for (std::size_t t = 0; t < c.size.tokens; ++t) {
      const double count = static_cast<double>(c.columns);
      const bool are_rounded = c.activations == ActivationType::kBFloat16;
      double exact = 0, of_activations = 0, rounded = 0, flushed = 1;
      for (std::size_t k = 0; k < c.columns; ++k) {
        const double x = c.x[t * c.columns + k], weight = w[k];
        const double error = are_rounded ? 0x1p-8 * std::fabs(x) + 0x1p-126 : 0;
        exact += x * weight;
        of_activations += error * std::fabs(weight);
        rounded += (std::fabs(x) + error) * std::fabs(weight);
        flushed += 13 + 3 * std::fabs(x) + 2 * std::fabs(weight);
      }
      const double bound = of_activations + 1.001 * 0x1p-24 * (count + 2) * rounded +
                           0x1p-126 * flushed + count * 0x1p-149;
      if (!(std::fabs(y[t * all_rows + r] - exact) <= bound)) return false;
    }
  }
  return true;
}

// Returns how many products were compared.
std::size_t check(const Case& c) {
  const auto& variants = tensor_ops::product_variants();
  std::vector<float> of_level;
  std::size_t compared = 0;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    if (!variants[v].cpu_has) continue;
    for (std::size_t present : {kTileRows, kTileRows - 3})
      if (v == variants[v].level && !c.packs_the_same(v, present))
        fail(c.name(variants[v].name) + ": packs other bytes than the lowest level");
    const ProductKernel& kernel = tensor_ops::product_kernel(c.format, c.activations, v);
    if (!kernel.multiply) continue;
    if (c.size.tiles > 1 && !kernel.for_tokens(c.size.tokens).multiply_tiles) continue;
    const std::vector<float> alone = c.multiply(kernel, 1);
    for (const std::size_t at_a_time : c.size.at_a_time)
      for (const bool together : {false, true}) {
        if (together && (c.size.tiles == 1 || !kernel.for_tokens(at_a_time).multiply_tiles))
          continue;
        ++compared;
        if (!same_bits(alone, c.multiply(kernel, at_a_time, together)))
          fail(c.name(variants[v].name) + ": " + std::to_string(at_a_time) +
               " tokens at a time have other bits than one");
      }
    if (std::string(c.format.name) == "bf16") {
      if (!is_within_bound(c, alone)) fail(c.name(variants[v].name) + ": exceeds its bound");
    } else if (v == variants[v].level || of_level.empty() || !are_integers(c.activations)) {
      of_level = alone;
    } else if (!same_bits(of_level, alone)) {
      fail(c.name(variants[v].name) + ": other bits than other variants of the level");
    }
  }
  return compared;
}

// Whether a variant multiplies several tiles together.
bool multiplies_tiles(const WeightFormat& format, ActivationType type, std::size_t tokens) {
  const auto& variants = tensor_ops::product_variants();
  for (std::size_t v = 0; v < variants.size(); ++v)
    if (variants[v].cpu_has &&
        tensor_ops::product_kernel(format, type, v).for_tokens(tokens).multiply_tiles)
      return true;
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  const tensor_ops::DefaultFloatMode float_mode;
  std::string fastest;
  for (const auto& variant : tensor_ops::product_variants())
    if (variant.cpu_has) fastest = variant.name;
  if (count > 1 && fastest != arguments[1])
    fail("the fastest variant is " + fastest + " instead of " + arguments[1]);
  Size few{19, 1, {}}, tiles{19, 3, {}};
  for (std::size_t n = 2; n <= few.tokens; ++n) few.at_a_time.push_back(n);
  tiles.at_a_time = {4, 5, 9, 16, 17, 19};
  const Size many{193, 11, {40, 193}};
  std::size_t compared = 0;
  for (const WeightFormat* format : tensor_ops::weight_formats())
    for (std::size_t a = 0; a < tensor_ops::kActivationTypes; ++a) {
      const auto type = static_cast<ActivationType>(a);
      const auto check_columns = [&](std::size_t columns, const Size& size) {
        if (columns % format->block_columns == 0 &&
            (size.tiles == 1 || multiplies_tiles(*format, type, size.tokens)))
          compared += check(Case(*format, type, columns, size));
      };
      for (std::size_t columns : {1, 3, 4, 6, 32, 75, 96, 256, 1024}) check_columns(columns, few);
      for (std::size_t columns : {6, 32, 96, 768, 2048}) check_columns(columns, tiles);
      check_columns(1280, many);
    }
  std::printf("check_products: %s: %zu products have the right bits\n", fastest.c_str(), compared);
}
