// How products take the activations of a token.
#pragma once

#include <cstring>

#include "decode/products/tile.h"
#include "kernels/vector.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// float32 activations are followed by zeros up to a multiple of this many columns.
constexpr std::size_t kColumnStep = 4;

constexpr std::size_t padded(std::size_t columns) {
  return (columns + kColumnStep - 1) / kColumnStep * kColumnStep;
}

std::size_t float_bytes(std::size_t columns) { return padded(columns) * sizeof(float); }

void prepare_floats(const float* x, std::size_t columns, unsigned char* prepared) {
  __builtin_memcpy(prepared, x, columns * sizeof *x);
  __builtin_memset(prepared + columns * sizeof *x, 0, float_bytes(columns) - columns * sizeof *x);
}

constexpr float kSecondTerm = 1.0f / 254;

// 32 activations: scale * q[0] or scale * (q[0] + q[1] / 254). An activation's error is at
// most 0.501 * scale with one term and 0.002 * scale with two, where scale is the largest magnitude
// of the block divided by 127, and 2^-142 more where that is subnormal.
template <std::size_t terms>
struct Int8Block {
  float scale, sum;  // the sum is that of the activations, less the scale
  // -8 times the sums of q over the first and the last 16 columns: weights less their zero point z
  // are multiplied by adding z / 8 times as much to the product of the weights with it.
  std::int32_t minus_8_sums[terms][2];
  std::int8_t q[terms][kBlockColumns];
};

template <std::size_t terms>
TENSOR_OPS_INLINE void prepare_block(const float* x, Int8Block<terms>& block) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < kBlockColumns; ++i) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  block = {};
  if (largest >= 0x7F800000) {  // Inf or NaN
    block.scale = __builtin_nanf("");
    return;
  }
  const float magnitude = bit_cast<float>(largest);
  // 127 divided by a number near the least would be infinite.
  const float up = magnitude < 0x1p-100f ? 0x1p100f : 1.0f;
  const float inverse = magnitude > 0 ? 127 / (magnitude * up) : 0.0f;

  // A sum with it rounds to an integer, which is what its bits differ by.
  constexpr float kRounder = 0x1.8p23f;
  const std::int32_t origin = bit_cast<std::int32_t>(kRounder);
  std::int32_t q[terms][kBlockColumns];
  for (std::size_t i = 0; i < kBlockColumns; ++i) {
    float rest = x[i] * up * inverse;
    for (std::size_t term = 0; term < terms; ++term) {
      const float rounded = rest + kRounder;
      q[term][i] = bit_cast<std::int32_t>(rounded) - origin;
      rest = (rest - (rounded - kRounder)) * 254;
    }
  }
  float sums[terms] = {};
  for (std::size_t term = 0; term < terms; ++term) {
    for (std::size_t half = 0; half < 2; ++half) {
      std::int32_t sum = 0;
      for (std::size_t i = 0; i < kBlockColumns / 2; ++i) sum += q[term][half * 16 + i];
      block.minus_8_sums[term][half] = -8 * sum;
      sums[term] += static_cast<float>(sum);
    }
    for (std::size_t i = 0; i < kBlockColumns; ++i)
      block.q[term][i] = static_cast<std::int8_t>(q[term][i]);
  }
  block.scale = magnitude / 127;
  block.sum = sums[0];
  if constexpr (terms == 2) block.sum += sums[1] * kSecondTerm;
}

template <std::size_t terms>
std::size_t int8_bytes(std::size_t columns) {
  return columns / kBlockColumns * sizeof(Int8Block<terms>);
}

template <std::size_t terms>
void prepare_int8(const float* x, std::size_t columns, unsigned char* prepared) {
  auto* blocks = reinterpret_cast<Int8Block<terms>*>(prepared);
  for (std::size_t b = 0; b < columns / kBlockColumns; ++b)
    prepare_block(x + b * kBlockColumns, blocks[b]);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
