// Products of bf16 weights with activations that are rounded to bfloat16.
#pragma once

#include "decode/products/multiply.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

// A word has two activations of a token, as a line has two weights of each row.
std::size_t bfloat16_bytes(std::size_t columns) { return float_bytes(columns) / 2; }

void prepare_bfloat16s(const float* x, std::size_t columns, unsigned char* prepared) {
  auto* const rounded = reinterpret_cast<std::uint16_t*>(prepared);
  for (std::size_t k = 0; k < columns; ++k) rounded[k] = BFloat16::store(x[k]);
  for (std::size_t k = columns; k < bfloat16_bytes(columns) / 2; ++k) rounded[k] = 0;
}

#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "decode/products/matrix_bfloat16.h"
#endif

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

#if defined(__AVX512BF16__)

static_assert(kParts == 1 && kChains == 2, "a vector is a line, and lines come in twos");

// The instruction treats subnormal numbers as 0, and returns 0 for subnormal results.
TENSOR_OPS_INLINE Floats dot_of_two(Floats sums, Words w, Ints x) {
  return bit_cast<Floats>(
      _mm512_dpbf16_ps(bit_cast<__m512>(sums), bit_cast<__m512bh>(w), bit_cast<__m512bh>(x)));
}

struct BFloat16Product {
  static constexpr std::size_t kTokens = kFloatTokens;

  // Several tiles, each `second` bytes behind the one before.
  template <std::size_t tiles, std::size_t count>
  static TENSOR_OPS_INLINE void run_tiles(const unsigned char* tile, std::size_t second,
                                          std::size_t columns, Tokens tokens) {
    Floats sums[count][tiles][kChains] = {};
    const std::size_t lines = bfloat16_bytes(columns) / 4;
    for (std::size_t line = 0; line < lines; line += kChains) {
      for (std::size_t i = 0; i < tiles; ++i)
        prefetch_lines(tile + i * second + line * kLineBytes, kChains * kLineBytes);
      TENSOR_OPS_UNROLLED_FOR (chain, kChains) {
        Words w[tiles];
        for (std::size_t i = 0; i < tiles; ++i)
          w[i] = load_vector<Words>(tile + i * second + (line + chain) * kLineBytes);
        TENSOR_OPS_UNROLLED_FOR (token, count) {
          const auto* words = reinterpret_cast<const std::int8_t*>(tokens.at(token));
          const Ints x = splat_word(words + (line + chain) * 4);
          for (std::size_t i = 0; i < tiles; ++i) {
            Floats& sum = sums[token][i][chain];
            sum = dot_of_two(sum, w[i], x);
          }
        }
      }
    }
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t i = 0; i < tiles; ++i) tokens.store(t, i, sums[t][i][0] + sums[t][i][1]);
  }

  template <std::size_t count>
  static void run(const unsigned char* tile, std::size_t columns, Tokens tokens) {
    run_tiles<1, count>(tile, 0, columns, tokens);
  }
  template <std::size_t count>
  static void run_pair(const unsigned char* tile, std::size_t second, std::size_t columns,
                       Tokens tokens) {
    run_tiles<2, count>(tile, second, columns, tokens);
  }
};

template <class Format>
constexpr ProductKernel bfloat16_product{bfloat16_bytes, in_rows<prepare_bfloat16s>,
                                         multiply<BFloat16Product>,
                                         multiply_tiles<BFloat16Product>};

#elif !defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

// Where there is no such instruction, the numbers are multiplied as float32.
void prepare_bfloat16s(const float* x, std::size_t columns, unsigned char* prepared) {
  prepare_floats(x, columns, prepared);
  auto* const rounded = reinterpret_cast<float*>(prepared);
  for (std::size_t k = 0; k < columns; ++k) rounded[k] = BFloat16::load(BFloat16::store(x[k]));
}

template <class Format>
constexpr ProductKernel bfloat16_product{float_bytes, in_rows<prepare_bfloat16s>,
                                         number_product<Format>.multiply,
                                         number_product<Format>.multiply_tiles};

#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
