// Products of bf16 weights with the bfloat16 instructions of AArch64. bfmmla multiplies two rows of
// a tile, 4 columns of each, by two tokens; bfdot multiplies two columns of four rows by one token.
//
// Both add to a sum, for each two columns in order, p1 + p2, where p1 and p2 are the exact
// products. So a token has the same bits whichever is used. Each of the two additions rounds to
// odd, with an error below 2^-23 of its result, and takes subnormal numbers for zero, in what it is
// given and what it returns. The mode of extended bfloat16 (FPCR.EBF), which rounds otherwise, is
// off in DefaultFloatMode. K / 2 additions to a sum, the first of them to zero, and one in each
// addend have an error of K 2^-24 at most, and lose at most K 2^-126 where a number is subnormal.
#pragma once

#include "decode/products/multiply.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

constexpr std::size_t kMatrixColumns = 4;  // two lines of a tile
static_assert(kMatrixColumns == kColumnStep && kParts == 4);

// Four columns of four rows: a line has two columns of each row.
struct FourRows {
  Words lines[2];

  TENSOR_OPS_INLINE FourRows(const unsigned char* lines_of_tile, std::size_t part) {
    for (std::size_t i = 0; i < 2; ++i)
      lines[i] = load_vector<Words>(lines_of_tile + i * kLineBytes + part * kVectorBytes);
  }
  // All columns of the first two rows, and of the last two.
  TENSOR_OPS_INLINE bfloat16x8_t low() const {
    return bit_cast<bfloat16x8_t>(
        vzip1q_u32(bit_cast<uint32x4_t>(lines[0]), bit_cast<uint32x4_t>(lines[1])));
  }
  TENSOR_OPS_INLINE bfloat16x8_t high() const {
    return bit_cast<bfloat16x8_t>(
        vzip2q_u32(bit_cast<uint32x4_t>(lines[0]), bit_cast<uint32x4_t>(lines[1])));
  }
};

TENSOR_OPS_INLINE bfloat16x4_t load_four(const unsigned char* activations) {
  return load_vector<bfloat16x4_t>(activations);
}

void multiply_one_token(const unsigned char* tile, std::size_t columns, Tokens tokens) {
  float32x4_t sums[kParts] = {};
  for (std::size_t k = 0; k < columns; k += kMatrixColumns) {
    const unsigned char* const lines = tile + k * kLineBytes / 2;
    prefetch_lines(lines, 2 * kLineBytes);
    const bfloat16x4_t x = load_four(tokens.at(0) + 2 * k);
    for (std::size_t p = 0; p < kParts; ++p) {
      const FourRows rows(lines, p);
      sums[p] = vbfdotq_lane_f32(sums[p], bit_cast<bfloat16x8_t>(rows.lines[0]), x, 0);
      sums[p] = vbfdotq_lane_f32(sums[p], bit_cast<bfloat16x8_t>(rows.lines[1]), x, 1);
    }
  }
  for (std::size_t p = 0; p < kParts; ++p) tokens.store(0, p, bit_cast<Floats>(sums[p]));
}

template <std::size_t pairs>
void multiply_pairs_of_tokens(const unsigned char* tile, std::size_t columns, Tokens tokens) {
  // The first two and the last two rows of a part: for the first token, then for the second.
  float32x4_t low[pairs][kParts] = {}, high[pairs][kParts] = {};
  for (std::size_t k = 0; k < columns; k += kMatrixColumns) {
    const unsigned char* const lines = tile + k * kLineBytes / 2;
    prefetch_lines(lines, 2 * kLineBytes);
    bfloat16x8_t x[pairs];
    for (std::size_t i = 0; i < pairs; ++i)
      x[i] = vcombine_bf16(load_four(tokens.at(2 * i) + 2 * k),
                           load_four(tokens.at(2 * i + 1) + 2 * k));
    repeat<kParts>([&](std::size_t part) TENSOR_OPS_INLINE_LAMBDA {
      const FourRows rows(lines, part);
      const bfloat16x8_t low_rows = rows.low(), high_rows = rows.high();
      repeat<pairs>([&](std::size_t i) TENSOR_OPS_INLINE_LAMBDA {
        low[i][part] = vbfmmlaq_f32(low[i][part], x[i], low_rows);
        high[i][part] = vbfmmlaq_f32(high[i][part], x[i], high_rows);
      });
    });
  }
  for (std::size_t i = 0; i < pairs; ++i)
    for (std::size_t p = 0; p < kParts; ++p) {
      const auto a = vreinterpretq_f64_f32(low[i][p]), b = vreinterpretq_f64_f32(high[i][p]);
      tokens.store(2 * i, p, bit_cast<Floats>(vzip1q_f64(a, b)));
      tokens.store(2 * i + 1, p, bit_cast<Floats>(vzip2q_f64(a, b)));
    }
}

// Multiplies `pairs` pairs of tokens at a time, then one less.
template <std::size_t pairs>
TENSOR_OPS_INLINE void multiply_tokens_by_matrices(const unsigned char* tile, std::size_t columns,
                                                   Tokens tokens, std::size_t count) {
  for (; count >= 2 * pairs; count -= 2 * pairs) {
    multiply_pairs_of_tokens<pairs>(tile, columns, tokens);
    tokens.skip(2 * pairs);
  }
  if constexpr (pairs > 1)
    multiply_tokens_by_matrices<pairs - 1>(tile, columns, tokens, count);
  else if (count > 0)
    multiply_one_token(tile, columns, tokens);
}

// Their sums fill the registers.
constexpr std::size_t kBFloat16Pairs = 3;

void multiply_bfloat16s(const unsigned char* tile, std::size_t columns,
                        const unsigned char* prepared, std::size_t prepared_stride,
                        std::size_t count, float* out, std::size_t out_stride) {
  multiply_tokens_by_matrices<kBFloat16Pairs>(tile, columns,
                                              {prepared, prepared_stride, out, out_stride}, count);
}

template <class Format>
constexpr ProductKernel bfloat16_product{bfloat16_bytes, in_rows<prepare_bfloat16s>,
                                         multiply_bfloat16s};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
