// Products of integer weights with the matrix instruction of AArch64 (i8mm), which multiplies two
// rows of a tile, 8 columns of each, by two rows of activations. Those are the two terms of one
// token, or two tokens with one term. The integers are exact, and the rest is done as in
// IntegerProduct, so that the results have the same bits as those of the other variants.
#pragma once

#include "decode/products/integer_product.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

static_assert(kParts == 4, "a part of a tile is four rows");

constexpr std::size_t kSteps = kBlockColumns / 8;  // columns of an instruction

TENSOR_OPS_INLINE int8x16_t low_halves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}
TENSOR_OPS_INLINE int8x16_t high_halves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

// Makes pairs of 32 activations each of two rows: the first 8 of each row, then the next 8.
TENSOR_OPS_INLINE void make_pairs(const std::int8_t* first, const std::int8_t* second,
                                  int8x16_t (&pairs)[kSteps]) {
  const int8x16_t a[] = {vld1q_s8(first), vld1q_s8(first + 16)};
  const int8x16_t b[] = {vld1q_s8(second), vld1q_s8(second + 16)};
  for (std::size_t i = 0; i < kSteps; ++i)
    pairs[i] = i % 2 ? high_halves(a[i / 2], b[i / 2]) : low_halves(a[i / 2], b[i / 2]);
}

// Two terms are kept as pairs, in the place of the terms one after the other. Matrices of several
// formats share them, so that each block format has kernels that take pairs.
void prepare_pairs_of_terms(const float* x, std::size_t columns, unsigned char* prepared) {
  prepare_int8<2>(x, columns, prepared);
  auto* const blocks = reinterpret_cast<Int8Block<2>*>(prepared);
  for (std::size_t b = 0; b < columns / kBlockColumns; ++b) {
    int8x16_t pairs[kSteps];
    make_pairs(blocks[b].q[0], blocks[b].q[1], pairs);
    __builtin_memcpy(blocks[b].q, pairs, sizeof pairs);
  }
}

// The activations of a block in two rows, and -8 times their sums over the first and the last 16
// columns, of the first row and of the second.
struct ActivationPairs {
  int8x16_t q[kSteps];
  int32x4_t minus_8_sums;

  TENSOR_OPS_INLINE explicit ActivationPairs(const Int8Block<2>& x)
      : minus_8_sums(load_vector<int32x4_t>(x.minus_8_sums)) {
    // GCC keeps what these intrinsics load in registers for one part of a tile only.
    const auto* const pairs = reinterpret_cast<const std::int8_t*>(x.q);
    for (std::size_t i = 0; i < kSteps; ++i) q[i] = vld1q_s8(pairs + 16 * i);
  }
  TENSOR_OPS_INLINE ActivationPairs(const Int8Block<1>& first, const Int8Block<1>& second)
      : minus_8_sums(
            vcombine_s32(vld1_s32(first.minus_8_sums[0]), vld1_s32(second.minus_8_sums[0]))) {
    make_pairs(first.q[0], second.q[0], q);
  }
};

template <class Format, std::size_t terms>
struct MatrixProduct {
  using Vectors = IntegerProduct<Format, terms>;
  using Activations = Int8Block<terms>;
  static constexpr std::size_t kTogether = 2 / terms;  // tokens of a pair of rows
  static constexpr std::size_t kStepsOfScale = kSteps / Format::kScales;

  // The weights of four rows: `low` has 8 columns of the first two rows in each vector.
  struct RowPairs {
    int8x16_t low[kSteps], high[kSteps];

    TENSOR_OPS_INLINE explicit RowPairs(const Format& block) {
      for (std::size_t i = 0; i < kSteps; ++i) {
        const int32x4_t a = word(block, 2 * i), b = word(block, 2 * i + 1);
        low[i] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        high[i] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
      }
    }
    static TENSOR_OPS_INLINE int32x4_t word(const Format& block, std::size_t j) {
      const Words w = block.word(j);
      return bit_cast<int32x4_t>(Vectors::kSigned ? signed_bytes(w) : w);
    }
  };

  // The sums over the columns of one scale: those of four rows with each row of activations.
  struct Sums {
    Floats of[2];

    TENSOR_OPS_INLINE Sums(const RowPairs& rows, const ActivationPairs& x, std::size_t scale) {
      int32x4_t low = start(x.minus_8_sums, scale), high = low;
      for (std::size_t i = scale * kStepsOfScale; i < (scale + 1) * kStepsOfScale; ++i) {
        low = vmmlaq_s32(low, x.q[i], rows.low[i]);
        high = vmmlaq_s32(high, x.q[i], rows.high[i]);
      }
      // Here, or GCC computes the sums of several parts at a time, more than fit the registers.
      asm volatile("" : "+w"(low), "+w"(high));
      const auto a = vreinterpretq_s64_s32(low), b = vreinterpretq_s64_s32(high);
      of[0] = __builtin_convertvector(bit_cast<Ints>(vzip1q_s64(a, b)), Floats);
      of[1] = __builtin_convertvector(bit_cast<Ints>(vzip2q_s64(a, b)), Floats);
    }
    // The correction of the sums for kZero: twice that of the first row of activations, then twice
    // that of the second.
    static TENSOR_OPS_INLINE int32x4_t start(int32x4_t minus_8_sums, std::size_t scale) {
      if constexpr (Vectors::kZero == 0) return int32x4_t{};
      int32x4_t sums;
      if constexpr (Format::kScales == 1) {
        const int32x4_t of_rows = vpaddq_s32(minus_8_sums, minus_8_sums);
        sums = vzip1q_s32(of_rows, of_rows);
      } else {
        sums = scale == 0 ? vtrn1q_s32(minus_8_sums, minus_8_sums)
                          : vtrn2q_s32(minus_8_sums, minus_8_sums);
      }
      return sums * (Vectors::kZero / 8);
    }
  };

  static TENSOR_OPS_INLINE const Activations& block_of(Tokens tokens, std::size_t token,
                                                       std::size_t b) {
    return reinterpret_cast<const Activations*>(tokens.at(token))[b];
  }
  static TENSOR_OPS_INLINE ActivationPairs pairs_of(Tokens tokens, std::size_t first,
                                                    std::size_t b) {
    if constexpr (terms == 2)
      return ActivationPairs(block_of(tokens, first, b));
    else
      return ActivationPairs(block_of(tokens, first, b), block_of(tokens, first + 1, b));
  }

  template <std::size_t pairs>
  static void run(const unsigned char* tile, std::size_t columns, Tokens tokens) {
    constexpr std::size_t count = pairs * kTogether;
    Floats results[count][kParts] = {};
    for (std::size_t b = 0; b < columns / kBlockColumns; ++b)
      repeat<kParts>([&](std::size_t part) TENSOR_OPS_INLINE_LAMBDA {
        const Format block(tile, b, part);
        if (part == 0) block.prefetch();
        const RowPairs rows(block);
        repeat<pairs>([&](std::size_t pair) TENSOR_OPS_INLINE_LAMBDA {
          const std::size_t first = pair * kTogether;
          const ActivationPairs x = pairs_of(tokens, first, b);
          Floats sums[Format::kScales][2];
          for (std::size_t s = 0; s < Format::kScales; ++s) {
            const Sums sums_of_scale(rows, x, s);
            sums[s][0] = sums_of_scale.of[0];
            sums[s][1] = sums_of_scale.of[1];
          }
          repeat<kTogether>([&](std::size_t token) TENSOR_OPS_INLINE_LAMBDA {
            Vectors::add_block(results[first + token][part], block,
                               block_of(tokens, first + token, b),
                               [&](std::size_t term, std::size_t s)
                                   TENSOR_OPS_INLINE_LAMBDA { return sums[s][token + term]; });
          });
        });
      });
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t p = 0; p < kParts; ++p) tokens.store(t, p, results[t][p]);
  }
};

// Multiplies `pairs` pairs at a time, then half as many.
template <class Product, std::size_t pairs>
TENSOR_OPS_INLINE void multiply_pairs(const unsigned char* tile, std::size_t columns,
                                      Tokens& tokens, std::size_t& count) {
  constexpr std::size_t together = pairs * Product::kTogether;
  for (; count >= together; count -= together) {
    Product::template run<pairs>(tile, columns, tokens);
    tokens.skip(together);
  }
  if constexpr (pairs > 1) multiply_pairs<Product, pairs / 2>(tile, columns, tokens, count);
}

// As many pairs as have hardly more sums than there are registers.
constexpr std::size_t kMostPairs = 4;

template <class Format, std::size_t terms>
void multiply_by_matrices(const unsigned char* tile, std::size_t columns,
                          const unsigned char* prepared, std::size_t prepared_stride,
                          std::size_t count, float* out, std::size_t out_stride) {
  Tokens tokens{prepared, prepared_stride, out, out_stride};
  multiply_pairs<MatrixProduct<Format, terms>, kMostPairs>(tile, columns, tokens, count);
  // A token without another takes fewer instructions as a row of its own.
  if constexpr (terms == 1)
    if (count > 0) IntegerProduct<Format, 1>::template run<1>(tile, columns, tokens);
}

template <class Format>
constexpr ProductKernel matrix_product_of_term{int8_bytes<1>, in_rows<prepare_int8<1>>,
                                               multiply_by_matrices<Format, 1>};
template <class Format>
constexpr ProductKernel matrix_product_of_terms{int8_bytes<2>, in_rows<prepare_pairs_of_terms>,
                                                multiply_by_matrices<Format, 2>};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
