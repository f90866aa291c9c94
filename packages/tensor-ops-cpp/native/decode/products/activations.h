// How products take the activations of a token.
#pragma once

#include "decode/products/dot.h"
#include "decode/products/tile.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// float32 activations are followed by zeros up to a multiple of this many columns.
constexpr std::size_t kColumnStep = 4;

std::size_t float_bytes(std::size_t columns) {
  return (columns + kColumnStep - 1) / kColumnStep * kColumnStep * sizeof(float);
}

[[maybe_unused]] void prepare_floats(const float* x, std::size_t columns, unsigned char* prepared) {
  __builtin_memcpy(prepared, x, columns * sizeof *x);
  __builtin_memset(prepared + columns * sizeof *x, 0, float_bytes(columns) - columns * sizeof *x);
}

constexpr float kSecondTerm = 1.0f / 254;

// 32 activations: scale * q[0] or scale * (q[0] + q[1] / 254). An activation's error is at most
// 0.501 * scale with one term and 0.002 * scale with two, where scale is the largest magnitude of
// the block divided by 127, and 2^-142 more where that is subnormal.
template <std::size_t terms>
struct Int8Block {
  float scale, sum;  // the sum is that of the activations, less the scale
  // -8 times the sums of q over the first and the last 16 columns. z / 8 times this corrects a
  // product of q with weights that still have their zero point z added.
  std::int32_t minus_8_sums[terms][2];
  std::int8_t q[terms][kBlockColumns];
};

template <class V>
TENSOR_OPS_INLINE std::int32_t largest_lane(V v) {
  if constexpr (sizeof(V) == 8) {
    return v[0] > v[1] ? v[0] : v[1];
  } else {
    struct Parts {
      typename VectorOf<std::int32_t, sizeof(V) / 2>::Type low, high;
    };
    const auto parts = bit_cast<Parts>(v);
    return largest_lane(parts.low > parts.high ? parts.low : parts.high);
  }
}

TENSOR_OPS_INLINE float largest_magnitude(const float* x) {
  Ints largest{};  // magnitudes are ordered as their bits are
  for (std::size_t i = 0; i < kBlockColumns; i += kLanes<float>) {
    const auto seen = bit_cast<Ints>(magnitude_of(load_vector<Floats>(x + i)));
    largest = seen > largest ? seen : largest;
  }
  return bit_cast<float>(largest_lane(largest));
}

template <std::size_t terms>
TENSOR_OPS_INLINE void prepare_block(const float* x, float magnitude, Int8Block<terms>& block) {
  // 127 divided by a number close to zero would be infinite.
  const float up = magnitude < 0x1p-100f ? 0x1p100f : 1.0f;
  const float inverse = magnitude > 0 ? 127 / (magnitude * up) : 0.0f;
  block.scale = is_finite(magnitude) ? magnitude / 127 : __builtin_nanf("");
  constexpr std::size_t vectors = kBlockColumns / kLanes<float>;
  Floats rest[vectors];
  for (std::size_t v = 0; v < vectors; ++v)
    rest[v] = load_vector<Floats>(x + v * kLanes<float>) * up * inverse;

  block.sum = 0;
  for (std::size_t term = 0; term < terms; ++term) {
    std::int32_t q[kBlockColumns];
    for (std::size_t v = 0; v < vectors; ++v) {
      // Adding 1.5 * 2^23 rounds to an integer, and the bits of the sum grow by that integer.
      const Floats rounded = rest[v] + 0x1.8p23f;
      store_vector(q + v * kLanes<float>,
                   bit_cast<Ints>(rounded) - bit_cast<std::int32_t>(0x1.8p23f));
      rest[v] = (rest[v] - (rounded - 0x1.8p23f)) * 254;
    }
    for (std::size_t i = 0; i < kBlockColumns; ++i)
      block.q[term][i] = static_cast<std::int8_t>(q[i]);

    const Words one = splat<Words>(0x01010101), ones[kDotWords] = {one, one, one, one};
    std::int32_t sum = 0;
    for (std::size_t half = 0; half < 2; ++half) {
      const std::int32_t half_sum = dot<1>(Ints{}, ones, block.q[term] + half * 16)[0];
      block.minus_8_sums[term][half] = -8 * half_sum;
      sum += half_sum;
    }
    block.sum += static_cast<float>(sum) * (term == 0 ? 1 : kSecondTerm);
  }
}

template <std::size_t terms>
std::size_t int8_bytes(std::size_t columns) {
  return columns / kBlockColumns * sizeof(Int8Block<terms>);
}

template <std::size_t terms>
void prepare_int8(const float* x, std::size_t columns, unsigned char* prepared) {
  auto* blocks = reinterpret_cast<Int8Block<terms>*>(prepared);
  const std::size_t count = columns / kBlockColumns;
  // In two passes, since the instructions of a block depend on each other: a CPU works on more
  // blocks at a time if each takes fewer instructions.
  for (std::size_t b = 0; b < count; ++b)
    blocks[b].scale = largest_magnitude(x + b * kBlockColumns);
  for (std::size_t b = 0; b < count; ++b)
    prepare_block(x + b * kBlockColumns, blocks[b].scale, blocks[b]);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
