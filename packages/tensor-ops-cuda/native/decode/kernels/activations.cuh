// The activations of a panel in shared memory, in the layout that the multiplying units read.
//
// Tensor cores: beside integers an activation is scale (q + q2 / 254), with one scale for 32
// columns. One instruction multiplies both: its rows 0 to 7 are q of eight tokens, its rows 8 to 15
// q2. Beside bfloat16 an activation is the sum of three numbers of bfloat16, which are all bits of
// float32. The third is multiplied by an instruction of its own, in the rows 8 to 15 as well: it is
// added to the sums of the second, so that those of the first are cut off half as often.
#pragma once

#include "decode/kernels/plan.h"
#include "kernels/arithmetic.cuh"
#include "kernels/elements.cuh"
#include "kernels/grid.cuh"

namespace tensor_ops::decode {

constexpr int kTermBytes = 64;  // of a token in a block: two terms
// The third term of a token in a block of bfloat16, with zeros in the rows of first terms.
constexpr int kThirdBytes = 64;

// Every block has room for kMostTokens tokens, whatever the step has, so that the strides are
// compile-time constants.
constexpr int kTermStride = kMostTokens * kTermBytes;
constexpr int kScaleStride = kMostTokens * 4, kThirdStride = kMostTokens * kThirdBytes;

// The largest sizes of the activations; attention reuses the same memory.
constexpr int kIntegerTerms = kPanelColumns / 32 * kTermStride;
constexpr int kFloatTerms = kFloatPanelColumns / 16 * kTermStride;
constexpr int kIntegerBytes = kIntegerTerms + kPanelColumns / 32 * kScaleStride;
constexpr int kFloatBytes = kFloatTerms + kFloatPanelColumns / 16 * kThirdStride;

constexpr int terms_bytes(WeightFormat format) {
  return format == WeightFormat::kBFloat16 ? kFloatTerms : kIntegerTerms;
}
constexpr int second_stride(WeightFormat format) {
  return format == WeightFormat::kBFloat16 ? kThirdStride : kScaleStride;
}

// Writes to shared memory, or publishes for all blocks.
class ActivationWriter {
 public:
  DEVICE explicit ActivationWriter(bool is_published) : is_published_(is_published) {}

 protected:
  template <class T>
  DEVICE void store(T* to, T value) {
    if (is_published_)
      publish(to, value);
    else
      *to = value;
  }

 private:
  bool is_published_;
};

// All threads of a block copy what blocks have published.
DEVICE void fetch(const unsigned char* from, unsigned char* to, int bytes, int gap_at, int gap) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += kBlockThreads * 16) {
    const int at = i < gap_at ? i : i + gap;
    *reinterpret_cast<uint4*>(to + at) = observe(reinterpret_cast<const uint4*>(from + at));
  }
}

// The layout for tensor cores.
class TermActivations : public ActivationWriter {
 public:
  static constexpr int kTokens = kMostTokens;

  DEVICE TermActivations(unsigned char* memory, WeightFormat format, bool is_published = false)
      : ActivationWriter(is_published),
        memory_(memory),
        second_part_(memory + terms_bytes(format)) {}

  // Copies the published activations of the first `steps` steps of a panel to shared memory.
  DEVICE static void fetch_steps(WeightFormat format, int steps, const unsigned char* from,
                                 unsigned char* to) {
    const int blocks = steps * layout_of(format).blocks(), terms = blocks * kTermStride;
    fetch(from, to, terms + blocks * second_stride(format), terms, terms_bytes(format) - terms);
  }

  // Where a lane reads its token in the first block of a step, and the distance to the next step.
  struct Reader {
    const unsigned char *terms, *second;
    int terms_step, second_step;

    DEVICE void skip(int steps) {
      terms += terms_step * steps;
      second += second_step * steps;
    }
  };
  // Lane l reads token l / 4, or token 0 where the step has fewer tokens.
  DEVICE Reader reader(WeightFormat format, int tokens) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, blocks = layout_of(format).blocks();
    const int token = lane / 4 < tokens ? lane / 4 : 0;
    const bool is_float = format == WeightFormat::kBFloat16;
    return {memory_ + token * kTermBytes + lane % 4 * 16,
            second_part_ + (is_float ? token * kThirdBytes + lane % 4 * 16 : token * 4),
            blocks * kTermStride, blocks * second_stride(format)};
  }

  // Stores four columns. Eight lanes that are neighbours have the 32 columns of a block, and all
  // lanes take part.
  DEVICE void store_vector(WeightFormat format, int token, int column, const float (&x)[4],
                           bool is_there) {
    if (format != WeightFormat::kBFloat16)
      store_integers(token, column, x, is_there);
    else if (is_there)
      store_floats(token, column, x);
  }

 private:
  DEVICE void store_integers(int token, int column, const float (&x)[4], bool is_there) {
    unsigned bits = 0;  // magnitudes are ordered as their bits are, and NaN is above all
#pragma unroll
    for (int i = 0; i < 4; ++i) bits = larger(bits, __float_as_uint(x[i]) & 0x7fffffffu);
    for (int mask = 1; mask < 8; mask *= 2) bits = larger(bits, __shfl_xor_sync(~0u, bits, mask));
    const float most = __uint_as_float(bits);
    // 127 divided by a number close to zero would be infinite.
    const float up = most < 0x1p-100f ? 0x1p100f : 1.0f;
    const float inverse = most > 0 ? 127 / (most * up) : 0.0f;
    const bool is_number = is_finite(most);
    unsigned words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float rest = x[i] * up * inverse;
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
        const float sum = rest + Format<float>::kShift;
        words[term] |= (__float_as_uint(sum) & 255u) << (8 * i);
        rest = (rest - (sum - Format<float>::kShift)) * 254;
      }
    }
    if (!is_there) return;
    const int block = column / 32, word = column % 32 / 4;
    auto* const to =
        reinterpret_cast<unsigned*>(memory_ + (block * kMostTokens + token) * kTermBytes);
    for (int term = 0; term < 2; ++term)
      store(to + word % 4 * 4 + word / 4 * 2 + term, is_number ? words[term] : 0);
    if (word == 0)
      store(reinterpret_cast<float*>(second_part_) + block * kMostTokens + token,
            is_number ? most / 127 : __uint_as_float(0x7fc00000u));
  }

  // Stores each number as a sum of three numbers of bfloat16.
  DEVICE void store_floats(int token, int column, const float (&x)[4]) {
    const int block = column / 16, first = column % 16 / 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      float rest[2] = {x[i], x[i + 1]};
      unsigned words[3];
#pragma unroll
      for (int term = 0; term < 3; ++term) {
        unsigned upper[2];
        for (int k = 0; k < 2; ++k) {
          // Truncated: rounding could overflow. Infinity and NaN leave no remainder.
          upper[k] = __float_as_uint(rest[k]) & 0xffff0000u;
          rest[k] = is_finite(rest[k]) ? rest[k] - __uint_as_float(upper[k]) : 0;
        }
        words[term] = upper[0] >> 16 | upper[1];
      }
      const int word = first + i / 2, at = block * kMostTokens + token;
      auto* const two = reinterpret_cast<unsigned*>(memory_ + at * kTermBytes);
      store(two + word % 4 * 4 + word / 4 * 2, words[0]);
      store(two + word % 4 * 4 + word / 4 * 2 + 1, words[1]);
      auto* const third = reinterpret_cast<unsigned*>(second_part_ + at * kThirdBytes);
      store(third + word % 4 * 4 + word / 4 * 2, 0u);
      store(third + word % 4 * 4 + word / 4 * 2 + 1, words[2]);
    }
  }

  DEVICE static unsigned larger(unsigned a, unsigned b) { return a > b ? a : b; }

  unsigned char *memory_, *second_part_;
};

// The layout for CUDA cores: float32, which has room for half as many tokens.
class FloatActivations : public ActivationWriter {
 public:
  static constexpr int kTokens = kMostTokens / 2;

  DEVICE FloatActivations(unsigned char* memory, WeightFormat, bool is_published = false)
      : ActivationWriter(is_published), memory_(memory) {}

  DEVICE static void fetch_steps(WeightFormat format, int, const unsigned char* from,
                                 unsigned char* to) {
    fetch(from, to, kTokens * token_bytes(format), 0, 0);
  }

  // Where a lane reads the first token. Four lanes share the columns of a row.
  struct Reader {
    const unsigned char* first;
    int token_bytes, step_bytes;

    DEVICE void skip(int steps) { first += step_bytes * steps; }
  };
  DEVICE Reader reader(WeightFormat format, int) const {
    const int wide = layout_of(format).block / 8;
    return {memory_ + static_cast<int>(threadIdx.x) % 4 * wide * 4, token_bytes(format),
            layout_of(format).columns * 4};
  }

  DEVICE void store_vector(WeightFormat format, int token, int column, const float (&x)[4],
                           bool is_there) {
    auto* const to = reinterpret_cast<float*>(memory_ + token * token_bytes(format)) + column;
    if (is_there) store(reinterpret_cast<float4*>(to), float4{x[0], x[1], x[2], x[3]});
  }

 private:
  DEVICE static int token_bytes(WeightFormat format) { return panel_columns(format) * 4; }

  unsigned char* memory_;
};
static_assert(FloatActivations::kTokens * kPanelColumns * 4 <= kIntegerBytes);

}  // namespace tensor_ops::decode
