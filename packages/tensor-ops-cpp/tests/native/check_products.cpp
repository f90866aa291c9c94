// Checks the variants of products that the processor has, without Python: quick on an emulated
// processor, for which `nox -s portable -- aarch64` builds it. A token has the same bits alone and
// among others, products with integers have the same bits in every variant of a level, and
// bfloat16 products are within the bound of product.h. The argument is the variant that must be the
// fastest one that the processor has.
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

constexpr std::size_t kTokens = 19;

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
std::vector<unsigned char> random_rows(const WeightFormat& format, std::size_t columns) {
  std::vector<unsigned char> rows(kTileRows * format.row_bytes(columns));
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

// Numbers of several magnitudes, subnormal ones and zeros.
std::vector<float> random_activations(std::size_t columns) {
  constexpr int exponents[] = {0, 0, 10, -20, -120, -130, -149, -300};
  std::vector<float> x(kTokens * columns);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(normal(), exponents[i / 32 % 8 * (i / columns % 3) % 8]);
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
  std::vector<unsigned char> rows;
  std::vector<float> x;
  Aligned tile;

  Case(const WeightFormat& format, ActivationType activations, std::size_t columns)
      : format(format),
        activations(activations),
        columns(columns),
        rows(random_rows(format, columns)),
        x(random_activations(columns)),
        tile(format.tile_bytes(columns)) {
    pack(0, kTileRows, tile.first);
  }

  // Packs the first rows as a level does it.
  void pack(std::size_t level, std::size_t present, unsigned char* to) const {
    format.pack[level](rows.data(), present, columns, to);
  }

  // Whether a level packs the same bytes as the lowest one.
  bool packs_the_same(std::size_t level, std::size_t present) const {
    const std::size_t size = format.tile_bytes(columns);
    Aligned expected(size), packed(size);
    pack(0, present, expected.first);
    pack(level, present, packed.first);
    return std::memcmp(expected.first, packed.first, size) == 0;
  }

  // The products of all tokens, so many at a time.
  std::vector<float> multiply(const ProductKernel& product, std::size_t at_a_time) const {
    const ProductKernel& kernel = product.for_tokens(at_a_time);
    const std::size_t stride = tensor_ops::decode::aligned(kernel.prepared_bytes(columns));
    const Aligned prepared(kTokens * stride);
    std::vector<float> y(kTokens * kTileRows);
    for (std::size_t first = 0; first < kTokens; first += at_a_time) {
      const std::size_t count = std::min(at_a_time, kTokens - first);
      unsigned char* const rows = prepared.first + first * stride;
      for (std::size_t t = 0; t < count; ++t)
        kernel.prepare(&x[(first + t) * columns], columns, rows, stride, t, count);
      kernel.multiply(tile.first, columns, rows, stride, count, &y[first * kTileRows], kTileRows);
    }
    return y;
  }

  std::string name(const char* variant) const {
    return std::string(format.name) + " with " +
           tensor_ops::kActivationNames[static_cast<std::size_t>(activations)] + ", " +
           std::to_string(columns) + " columns, " + variant;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The bound of product.h for bfloat16 activations.
bool is_within_bound(const Case& c, const std::vector<float>& y) {
  std::vector<float> w(c.columns);
  for (std::size_t r = 0; r < kTileRows; ++r) {
    c.format.dequantize(&c.rows[r * c.format.row_bytes(c.columns)], c.columns, w.data());
    for (std::size_t t = 0; t < kTokens; ++t) {
      const double count = static_cast<double>(c.columns);
      double exact = 0, of_activations = 0, rounded = 0, flushed = 1;
      for (std::size_t k = 0; k < c.columns; ++k) {
        const double x = c.x[t * c.columns + k], weight = w[k];
        const double error = 0x1p-8 * std::fabs(x) + 0x1p-126;
        exact += x * weight;
        of_activations += error * std::fabs(weight);
        rounded += (std::fabs(x) + error) * std::fabs(weight);
        flushed += 1 + std::fabs(x);
      }
      const double bound = of_activations + 1.001 * 0x1p-24 * (count + 2) * rounded +
                           0x1p-126 * flushed + count * 0x1p-149;
      if (!(std::fabs(y[t * kTileRows + r] - exact) <= bound)) return false;
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
    const std::vector<float> alone = c.multiply(kernel, 1);
    for (std::size_t at_a_time = 2; at_a_time <= kTokens; ++at_a_time, ++compared)
      if (!same_bits(alone, c.multiply(kernel, at_a_time)))
        fail(c.name(variants[v].name) + ": " + std::to_string(at_a_time) +
             " tokens at a time have other bits than one");
    if (c.activations == ActivationType::kBFloat16) {
      if (!is_within_bound(c, alone)) fail(c.name(variants[v].name) + ": exceeds its bound");
    } else if (v == variants[v].level || of_level.empty()) {
      of_level = alone;
    } else if (!same_bits(of_level, alone)) {
      fail(c.name(variants[v].name) + ": other bits than other variants of the level");
    }
  }
  return compared;
}

}  // namespace

int main(int count, char** arguments) {
  const tensor_ops::DefaultFloatMode float_mode;
  std::string fastest;
  for (const auto& variant : tensor_ops::product_variants())
    if (variant.cpu_has) fastest = variant.name;
  if (count > 1 && fastest != arguments[1])
    fail("the fastest variant is " + fastest + " instead of " + arguments[1]);
  std::size_t compared = 0;
  for (const WeightFormat* format : tensor_ops::weight_formats())
    for (std::size_t a = 0; a < tensor_ops::kActivationTypes; ++a)
      for (std::size_t columns : {1, 3, 4, 6, 32, 75, 96, 256, 1024})
        if (columns % format->block_columns == 0)
          compared += check(Case(*format, static_cast<ActivationType>(a), columns));
  std::printf("check_products: %s: %zu products have the right bits\n", fastest.c_str(), compared);
}
