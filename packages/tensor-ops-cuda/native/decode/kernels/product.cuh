// Products of a panel by the tokens of a step, by tensor cores. The instructions are the same for
// one token and for eight, so that a token has the same bits alone and in a batch: tokens that are
// not there repeat the first one.
#pragma once

#include "decode/kernels/activations.cuh"
#include "decode/kernels/ring.cuh"
#include "kernels/mma.cuh"

namespace tensor_ops::decode {

// A lane's sums of a tile: of token lane / 4, and of the rows 2 w, 2 w + 1, 8 + 2 w and 9 + 2 w,
// for w = lane % 4.
DEVICE float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

DEVICE uint4 vector_at(const unsigned char* from) { return *reinterpret_cast<const uint4*>(from); }
DEVICE unsigned word_of(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// The sums of integers, times the scales of weights and activations, but not yet times what all
// sums have in common.
template <WeightFormat kFormat>
class IntegerSums {
 public:
  static constexpr StepLayout kLayout = layout_of(kFormat);
  static constexpr int kBlocksOfPart = kLayout.blocks() / 2;

  DEVICE void add(const unsigned char* step, const Activations& x, int first_block, int token) {
    const int lane = lane_of_thread();
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint4 words[2], scales[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        words[half] = vector_at(step + (part * 2 + half) * 512 + lane * 16);
        const int pair = half * 4 + lane % 4;
        const unsigned char* const at = step + kBodyBytes + pair * (kLayout.blocks() * 4);
        if constexpr (kBlocksOfPart == 4) {
          scales[half] = vector_at(at + part * 16);
        } else {
          const uint2 two = *reinterpret_cast<const uint2*>(at + part * 8);
          scales[half] = {two.x, two.y, 0, 0};
        }
      }
#pragma unroll
      for (int j = 0; j < kBlocksOfPart; ++j) {
        const int block = first_block + part * kBlocksOfPart + j;
        const uint4 terms = x.terms(block, token);
        const float scale = x.scale(block, token);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int products[4] = {0, 0, 0, 0};
          mma_s8(products, terms, integers(words[half], j));
          const unsigned two = word_of(scales[half], j);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const auto joined = static_cast<float>(254 * products[i] + products[2 + i]);
            const float of_weight = real(Float16{static_cast<unsigned short>(two >> (16 * i))});
            sums_[half][i] = fused(joined, scale * of_weight, sums_[half][i]);
          }
        }
      }
    }
  }

  DEVICE float4 joined() const {
    const float unit = (kFormat == WeightFormat::kQ4_0 ? 1.0f / 16 : 1.0f) / 254;
    return {sums_[0][0] * unit, sums_[0][1] * unit, sums_[1][0] * unit, sums_[1][1] * unit};
  }

 private:
  // Halves of bytes are signed, so that in the upper half of a byte they are 16 times the weight.
  DEVICE static uint2 integers(uint4 words, int j) {
    if constexpr (kFormat == WeightFormat::kQ4_0) {
      const unsigned word = word_of(words, j);
      return {word << 4 & 0xf0f0f0f0u, word & 0xf0f0f0f0u};
    } else {
      return {word_of(words, 2 * j), word_of(words, 2 * j + 1)};
    }
  }

  float sums_[2][2] = {};
};

class FloatSums {
 public:
  static constexpr StepLayout kLayout = layout_of(WeightFormat::kBFloat16);

  DEVICE void add(const unsigned char* step, const Activations& x, int first_block, int token) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint4 words[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        words[half] = vector_at(step + (part * 2 + half) * 512 + lane_of_thread() * 16);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int block = first_block + part * 2 + j;
        const uint4 terms = x.terms(block, token);
        const uint2 third = x.third_term(block, token);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint2 weights = {word_of(words[half], 2 * j), word_of(words[half], 2 * j + 1)};
          mma_bf16(sums_[half], {third.x, 0, third.y, 0}, weights);
          mma_bf16(sums_[half], terms, weights);
        }
      }
    }
  }

  DEVICE float4 joined() const {
    return {sums_[0][0] + sums_[0][2], sums_[0][1] + sums_[0][3], sums_[1][0] + sums_[1][2],
            sums_[1][1] + sums_[1][3]};
  }

 private:
  float sums_[2][4] = {};
};

template <WeightFormat kFormat>
struct SumsOf {
  using Type = IntegerSums<kFormat>;
};
template <>
struct SumsOf<WeightFormat::kBFloat16> {
  using Type = FloatSums;
};

// Where warps that share a tile leave their sums for the one that adds them up. There are two sets
// that are used in turn, so that writing to one needs no wait after reading the other.
struct PartialSums {
  float4 of_warp[2][kBlockWarps][32];
};

// Calls finish(tile, sums) for each tile of the block, on one warp of those that share it: the same
// for all panels of a matrix. All threads of the block take part.
template <WeightFormat kFormat, class Ring, class Finish>
DEVICE void multiply_panel(const Panel& panel, Ring& ring, const Activations& x, int tokens,
                           PartialSums& partial, int& turn, Finish finish) {
  using Sums = typename SumsOf<kFormat>::Type;
  const WarpShare share(panel);
  const int split = 1 << panel.log2_split, warp = warp_of_thread(), lane = lane_of_thread();
  const int token = lane / 4 < tokens ? lane / 4 : 0, passes = share.passes();
  for (int pass = 0; pass < passes; ++pass) {
    const int tile = share.first_tile + pass * share.tile_step;
    const bool has_tile = tile < share.tiles;
    Sums sums;
    if (has_tile)
      for (int s = 0; s < share.num_steps; ++s) {
        const int step = share.first_step + (s << panel.log2_split);
        sums.add(ring.take(), x, step * Sums::kLayout.blocks(), token);
      }
    float4 total = sums.joined();
    if (split > 1) {
      float4(&of_warp)[kBlockWarps][32] = partial.of_warp[turn];
      of_warp[warp][lane] = total;
      turn ^= 1;
      block_sync(kPartsWritten);
      const int first = share.group * split;
      if (warp - first != (pass & (split - 1))) continue;
      total = of_warp[first][lane];
      for (int w = 1; w < split; ++w) total = total + of_warp[first + w][lane];
    }
    if (has_tile) finish(tile, total);
  }
}

}  // namespace tensor_ops::decode
