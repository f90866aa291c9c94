// Products by CUDA cores in float32, of the same packed weights with unrounded activations.
#pragma once

#include "decode/kernels/product.cuh"

namespace tensor_ops::decode {

// A lane's accumulators: lane l has row l / 4 of each half, for all tokens, over its own columns.
struct CudaCoreSums {
  using Activations = FloatActivations;

  float of_half[2][FloatActivations::kTokens] = {};

  // Redistributes the sums among the lanes as TensorCoreSums has them. Lanes of absent tokens get
  // 0.
  DEVICE float4 joined(WeightFormat format) const {
    const int lane = lane_of_thread();
    float4 total = {0, 0, 0, 0};
#pragma unroll 1
    for (int pair = 0; pair < 4; ++pair) {
      const int half = pair / 2, row = lane % 4 * 2 + pair % 2;
      float found = 0;
#pragma unroll
      for (int token = 0; token < FloatActivations::kTokens; ++token) {
        float sum = half == 0 ? of_half[0][token] : of_half[1][token];
        for (int mask = 1; mask < 4; mask *= 2) sum += __shfl_xor_sync(~0u, sum, mask);
        const float of_row = __shfl_sync(~0u, sum, row * 4);
        if (lane / 4 == token) found = of_row;
      }
      if (format == WeightFormat::kQ4_0) found *= 1.0f / 16;
      (pair == 0 ? total.x : pair == 1 ? total.y : pair == 2 ? total.z : total.w) = found;
    }
    return total;
  }
};

DEVICE float float_of_byte(unsigned word, int i) {
  return static_cast<float>(static_cast<signed char>(word >> (8 * i)));
}

// The weights of a lane in block j of a part.
template <WeightFormat kFormat, int kCount>
DEVICE void unpack_block(float (&weights)[kCount], uint4 words, int j) {
  const uint2 two = weights_of_block<kFormat>(words, j);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const unsigned word = i < kCount / 2 ? two.x : two.y;
    const int k = i % (kCount / 2);
    if constexpr (kFormat == WeightFormat::kBFloat16)
      weights[i] = __uint_as_float(k == 0 ? word << 16 : word & 0xffff0000u);
    else
      weights[i] = float_of_byte(word, k);
  }
}

template <WeightFormat kFormat>
DEVICE void add_rows(CudaCoreSums& sums, const unsigned char* step,
                     const FloatActivations::Reader& x) {
  constexpr StepLayout kLayout = layout_of(kFormat);
  constexpr int kBlocks = kLayout.blocks() / 2, kWide = kLayout.block / 8;
  const int lane = lane_of_thread(), row = lane / 4;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    uint4 words[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      words[half] = vector_at(step + (part * 2 + half) * 512 + lane * 16);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int block = part * kBlocks + j;
      float weights[2][2 * kWide], scale[2] = {1, 1};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unpack_block<kFormat>(weights[half], words[half], j);
        if constexpr (kLayout.scale_bytes > 0) {
          const int at = ((half * 4 + row / 2) * kLayout.blocks() + block) * 4 + row % 2 * 2;
          scale[half] = real(*reinterpret_cast<const Float16*>(step + kBodyBytes + at));
        }
      }
#pragma unroll
      for (int token = 0; token < FloatActivations::kTokens; ++token) {
        const unsigned char* const from =
            x.first + token * x.token_bytes + block * kLayout.block * 4;
        Packed<float, kWide> sides[2];
        sides[0] = *reinterpret_cast<const Packed<float, kWide>*>(from);
        sides[1] = *reinterpret_cast<const Packed<float, kWide>*>(from + kLayout.block * 2);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float sum = 0;
#pragma unroll
          for (int i = 0; i < 2 * kWide; ++i)
            sum = fused(weights[half][i], sides[i / kWide].element[i % kWide], sum);
          float& total = sums.of_half[half][token];
          total = kLayout.scale_bytes > 0 ? fused(sum, scale[half], total) : total + sum;
        }
      }
    }
  }
}

DEVICE void add_step(CudaCoreSums& sums, WeightFormat format, const unsigned char* step,
                     const FloatActivations::Reader& x) {
  if (format == WeightFormat::kQ4_0)
    add_rows<WeightFormat::kQ4_0>(sums, step, x);
  else if (format == WeightFormat::kQ8_0)
    add_rows<WeightFormat::kQ8_0>(sums, step, x);
  else
    add_rows<WeightFormat::kBFloat16>(sums, step, x);
}

}  // namespace tensor_ops::decode
