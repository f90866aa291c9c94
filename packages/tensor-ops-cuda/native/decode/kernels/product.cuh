// Products of a panel by the tokens of a step, by tensor cores or by CUDA cores. The instructions
// are the same for one token and for as many as there can be, so that a token has the same bits
// alone and in a batch.
#pragma once

#include "decode/kernels/activations.cuh"
#include "decode/kernels/ring.cuh"
#include "kernels/mma.cuh"

namespace tensor_ops::decode {

// The sums of a tile are distributed as follows: lane l has token l / 4, and with w = l % 4 the
// rows 2 w, 2 w + 1, 8 + 2 w and 9 + 2 w.
DEVICE float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

DEVICE uint4 vector_at(const unsigned char* from) { return *reinterpret_cast<const uint4*>(from); }
DEVICE unsigned word_of(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// A lane's accumulators: [half of the rows][row of the pair]. With bfloat16 the last two of each
// half have the products with the second and third terms.
struct TensorCoreSums {
  using Activations = TermActivations;

  float of_half[2][4] = {};

  DEVICE float4 joined(WeightFormat format) const {
    float4 total;
    if (format == WeightFormat::kBFloat16) {
      total = {of_half[0][0] + of_half[0][2], of_half[0][1] + of_half[0][3],
               of_half[1][0] + of_half[1][2], of_half[1][1] + of_half[1][3]};
    } else {
      // The factor that all products of integers share.
      constexpr float kUnit = 1.0f / 254, kUpperUnit = kUnit / 16;
      const float unit = format == WeightFormat::kQ4_0 ? kUpperUnit : kUnit;
      total = {of_half[0][0] * unit, of_half[0][1] * unit, of_half[1][0] * unit,
               of_half[1][1] * unit};
    }
    return total;
  }
};

// The weights of block j as an operand of mma. Q4_0 has signed nibbles, which in the upper half of
// a byte are 16 times the weight.
template <WeightFormat kFormat>
DEVICE uint2 weights_of_block(uint4 words, int j) {
  if constexpr (kFormat == WeightFormat::kQ4_0) {
    const unsigned word = word_of(words, j);
    return {word << 4 & 0xf0f0f0f0u, word & 0xf0f0f0f0u};
  } else {
    return {word_of(words, 2 * j), word_of(words, 2 * j + 1)};
  }
}

// Adds the products of a step. `terms` and `second` point to the lane's activations in the first
// block of the step.
template <WeightFormat kFormat>
DEVICE void add_integers(TensorCoreSums& sums, const unsigned char* step,
                         const unsigned char* terms, const unsigned char* second) {
  constexpr StepLayout kLayout = layout_of(kFormat);
  constexpr int kBlocks = kLayout.blocks() / 2;  // of a part
  const int lane = lane_of_thread();
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    uint4 words[2], scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      words[half] = vector_at(step + (part * 2 + half) * 512 + lane * 16);
      const unsigned char* const at =
          step + kBodyBytes + (half * 4 + lane % 4) * (kLayout.blocks() * 4) + part * (kBlocks * 4);
      if constexpr (kBlocks == 4) {
        scales[half] = vector_at(at);
      } else {
        const uint2 two = *reinterpret_cast<const uint2*>(at);
        scales[half] = {two.x, two.y, 0, 0};
      }
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int block = part * kBlocks + j;
      const uint4 x = vector_at(terms + block * kTermStride);
      const float scale = *reinterpret_cast<const float*>(second + block * kScaleStride);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int products[4] = {0, 0, 0, 0};
        mma_s8(products, x, weights_of_block<kFormat>(words[half], j));
        const unsigned two = word_of(scales[half], j);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const auto joined = static_cast<float>(254 * products[i] + products[2 + i]);
          const float of_weight = real(Float16{static_cast<unsigned short>(two >> (16 * i))});
          float& sum = sums.of_half[half][i];
          sum = fused(joined, scale * of_weight, sum);
        }
      }
    }
  }
}

// Adds the products of a step of bfloat16. Their sums have this error bound, relative to the sum of
// the magnitudes of all products of a row.
//
// Tensor cores add n products and the sum so far at once: each of the n + 1 numbers is cut off
// below 2^-x of the last digit of the largest, less than 2^(-23 - x) of it, and the result below
// its own last digit, less than 2^-23 of it (emulation/mma.cpp has the rule and its sources).
// Neither is more than the magnitudes so far. So an instruction of 16 products errs by less than
//
//     e = 16 / n ((n + 1) 2^-x + 1) 2^-23     5.25 2^-23 on Hopper (n = 16, x = 2)
//                                               11 2^-23 on Ampere (n = 8,  x = 1)
//
// A warp adds the first terms of a panel, which has 512 columns, by 32 instructions; other
// instructions add zeros to their sums, which is exact. The other terms are less than 2^-7 of the
// first and take 64. These two sums, those of up to 8 warps, and those of P panels are then added
// in float32, with 7 + P roundings of 2^-24:
//
//     32 (1 + 2^-6) e + (7 + P) 2^-24         2.1e-5 on Hopper, 4.3e-5 on Ampere, for 2048 columns
//
// The signs of what is cut off differ, so that usual errors are less than a fiftieth of that.
// Without the third terms, products would be less by up to 2^-15, which is 3.1e-5.
DEVICE void add_floats(TensorCoreSums& sums, const unsigned char* step, const unsigned char* terms,
                       const unsigned char* second) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    uint4 words[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      words[half] = vector_at(step + (part * 2 + half) * 512 + lane_of_thread() * 16);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int block = part * 2 + j;
      const uint4 x = vector_at(terms + block * kTermStride);
      const uint4 third = vector_at(second + block * kThirdStride);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 weights = weights_of_block<WeightFormat::kBFloat16>(words[half], j);
        mma_bf16(sums.of_half[half], third, weights);
        mma_bf16(sums.of_half[half], x, weights);
      }
    }
  }
}

DEVICE void add_step(TensorCoreSums& sums, WeightFormat format, const unsigned char* step,
                     const TermActivations::Reader& x) {
  if (format == WeightFormat::kQ4_0)
    add_integers<WeightFormat::kQ4_0>(sums, step, x.terms, x.second);
  else if (format == WeightFormat::kQ8_0)
    add_integers<WeightFormat::kQ8_0>(sums, step, x.terms, x.second);
  else
    add_floats(sums, step, x.terms, x.second);
}

// The sums of warps that share a tile, until one warp adds them up. Two buffers alternate, so that
// one barrier for each tile suffices.
struct PartialSums {
  float4 of_warp[2][kBlockWarps][32];
};

// Calls finish(tile, sums) for each tile of the block, on one warp of those that share it: the same
// for all panels of a matrix. All threads of the block take part. There is one loop for all types
// of weights, so that the loop and what follows it exist once in the kernel's code.
template <class Sums, class Ring, class Finish>
DEVICE void multiply_panel(const Panel& panel, Ring& ring, const typename Sums::Activations& x,
                           int tokens, PartialSums& partial, int& turn, Finish finish) {
  const WarpShare share(panel);
  const WeightFormat format = panel.format;
  const int log2_split = panel.log2_split, split = 1 << log2_split, passes = share.passes();
  const int warp = warp_of_thread(), lane = lane_of_thread();
  auto first = x.reader(format, tokens);
  first.skip(share.first_step);
  for (int pass = 0; pass < passes; ++pass) {
    const int tile = share.first_tile + pass * share.tile_step;
    const bool has_tile = tile < share.tiles;
    Sums sums;
    auto reader = first;
    for (int left = has_tile ? share.num_steps : 0; left > 0; --left) {
      add_step(sums, format, ring.take(), reader);
      reader.skip(split);
    }
    float4 total = sums.joined(format);
    if (split > 1) {
      float4(&of_warp)[kBlockWarps][32] = partial.of_warp[turn];
      of_warp[warp][lane] = total;
      turn ^= 1;
      block_sync(kPartsWritten);
      const int first_warp = share.group << log2_split;
      if (warp - first_warp != (pass & (split - 1))) continue;
      total = of_warp[first_warp][lane];
#pragma unroll 1
      for (int w = 1; w < split; ++w) total = total + of_warp[first_warp + w][lane];
    }
    if (has_tile) finish(tile, total);
  }
}

}  // namespace tensor_ops::decode
