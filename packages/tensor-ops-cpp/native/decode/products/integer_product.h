// Products of integer weights with activations in int8, of one or two terms.
//
// The steps of a block are the outer loop and the tokens the inner one, so that few weights are
// live beside the sums of all tokens. On AVX-512 with VNNI the tokens are the outer loop beside
// bytes: all words of a block have registers there. Several tokens of two terms are multiplied as
// int16 there, which takes fewer instructions besides the products; for one token, to separate the
// bytes of weights takes longer than that. unpacked/ has the products of many tokens.
// tests/test_decode_products_registers.py reads the machine code.
#pragma once

#include "decode/products/integer_sums.h"
#include "decode/products/multiply.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// How many tokens are taken at a time, half as many with two minimums: as many as have their
// integer sums in the registers, and with 32 registers those over the blocks too.
template <std::size_t terms, std::size_t scales>
#if defined(__AVX512F__)
constexpr std::size_t kIntegerTokens = 8 / (TENSOR_OPS_X86_PAIRS ? scales : 1);
#elif !TENSOR_OPS_X86_PAIRS && !defined(__ARM_FEATURE_DOTPROD)
constexpr std::size_t kIntegerTokens = 4 / terms;
#else
constexpr std::size_t kIntegerTokens = 4;
#endif

// Whether the sums over the blocks find no registers beside those of a block.
#if defined(__AVX512F__)
constexpr bool kSumsInMemory = false;
#else
constexpr bool kSumsInMemory = true;
#endif

// Ends a block, for a vector of rows. The sums of two terms are 254 times too large.
template <std::size_t scales, bool has_minimum>
struct BlockEnd {
  Floats scale[scales], minimum[has_minimum ? scales : 1];

  // total_of(scale) returns the sum over the columns of one scale, with all terms.
  template <class X, class TotalOf>
  TENSOR_OPS_INLINE void add_totals(Floats& sums, const X& x, TotalOf total_of) const {
    Floats total = total_of(0) * scale[0];
    if constexpr (scales == 2) total = fma(total_of(1), scale[1], total);
    if constexpr (has_minimum && scales == 1) total = fma(minimum[0], broadcast(x.sum), total);
    if constexpr (has_minimum && scales == 2)
      for (std::size_t s = 0; s < scales; ++s)
        total = fma(minimum[s], broadcast(x.half_sum(s)), total);
    sums = fma(total, broadcast(x.scale), sums);
  }
};
template <std::size_t terms, class Format>
TENSOR_OPS_INLINE auto end_of(const Format& block) {
  BlockEnd<Format::kScales, Format::kHasMinimum> end;
  for (std::size_t s = 0; s < Format::kScales; ++s) {
    if constexpr (Format::kHasMinimum) end.minimum[s] = block.minimum[s];
    end.scale[s] = terms == 1 ? block.scale[s] : block.scale[s] * kSecondTerm;
  }
  return end;
}

// Makes the compiler forget where a pointer leads to, so that what is there stays in memory.
template <class T>
TENSOR_OPS_INLINE T* in_memory(T* p) {
  asm volatile("" : "+r"(p) : : "memory");
  return p;
}

// Block is what it takes the activations of a block in.
template <class Format, std::size_t terms, class Block = Activations<terms>>
struct IntegerProduct {
  static constexpr std::size_t kScales = Format::kScales;
  static constexpr bool kJoined = std::is_same_v<Block, PairBlock<2>>;
  static constexpr std::size_t kMost =
      kIntegerTokens<terms, kScales> / (kScales == 2 && Format::kHasMinimum ? 2 : 1);
#if defined(__AVX512VNNI__)
  // Several tokens of two terms are joined, except for those that fill no tile of AMX.
  static constexpr std::size_t kTokens = kJoined || terms == 1 ? kMost : 4;
#else
  static constexpr std::size_t kTokens = kMost;
#endif
  // Whether the weights of a step are block.nibble_pairs(), which takes fewer instructions.
  static constexpr bool kTakesNibblePairs = kJoined && Format::kLargest == 15;
  using Sums = IntegerSums<Format, terms, Block>;

  // Parameters of products that take weights as bytes.
  static constexpr bool kSigned = DotSums<Format, terms>::kSigned;
  static constexpr int kZero = DotSums<Format, terms>::kZero;

  // The correction of the sum over one scale's columns for kZero, where the sum has none itself.
  static TENSOR_OPS_INLINE std::int32_t start(const Int8Block<terms>& x, std::size_t term,
                                              std::size_t scale) {
    return (kScales == 1 ? x.minus_8_totals[term] : x.minus_8_sums[term][scale]) * (kZero / 8);
  }

  // sum_of(term, scale) returns the sum over the columns of one scale.
  template <class SumOf>
  static TENSOR_OPS_INLINE void add_block(Floats& sums, const Format& block,
                                          const Int8Block<terms>& x, SumOf sum_of) {
    end_of<terms>(block).add_totals(sums, x, [&](std::size_t scale) TENSOR_OPS_INLINE_LAMBDA {
      const Floats first = sum_of(0, scale);
      return terms == 1 ? first : join_terms(first, sum_of(terms - 1, scale));
    });
  }

  // The sums over the columns of a scale, for all tokens and kTogether vectors of rows.
  template <std::size_t count>
  static TENSOR_OPS_INLINE void sum_scale(Sums (&sums)[count], const unsigned char* tile,
                                          std::size_t b, std::size_t first_part, std::size_t scale,
                                          Tokens tokens) {
    constexpr std::size_t words = 2 * kDotWords / kScales;
    TENSOR_OPS_UNROLLED_FOR (token, count) {
      sums[token].start(block(tokens, token, b), scale);
    }
    // A loop here makes GCC keep vectors of the words on the stack on AVX2.
    repeat<words>([&](std::size_t word) TENSOR_OPS_INLINE_LAMBDA {
      const std::size_t j = scale * words + word;
      forget_memory();
      Words read[kTogether];
      for (std::size_t v = 0; v < kTogether; ++v) read[v] = Format(tile, b, first_part + v).word(j);
      TENSOR_OPS_UNROLLED_FOR (step, Sums::kSteps) {
        Words weights[kTogether];
        for (std::size_t v = 0; v < kTogether; ++v) {
          if constexpr (kTakesNibblePairs)
            weights[v] = Format(tile, b, first_part + v).nibble_pairs(j, step);
          else
            weights[v] = Sums::weights(read[v], step);
          compute_here(weights[v]);
        }
        TENSOR_OPS_UNROLLED_FOR (token, count) {
          sums[token].add(weights, block(tokens, token, b), j * Sums::kSteps + step);
        }
      }
    });
  }

#if defined(__AVX512VNNI__)
  // Where the words of a block have registers beside the sums of all tokens: the sums of a token
  // over the columns of one scale, in two chains if that has 32 columns.
  static TENSOR_OPS_INLINE Floats total_of(const Words (&words)[2 * kDotWords],
                                           const Int8Block<terms>& x, std::size_t scale) {
    constexpr std::size_t halves = 2 / kScales;
    Floats totals[terms];
    for (std::size_t term = 0; term < terms; ++term) {
      Ints sum{};
      for (std::size_t half = scale * halves; half < (scale + 1) * halves; ++half) {
        Ints part{};
        if constexpr (kZero != 0 && kScales == 2)
          part = splat<Ints>(x.minus_8_sums[term][half]) * (kZero / 8);
        for (std::size_t j = half * kDotWords; j < (half + 1) * kDotWords; ++j)
          part = dot(part, words[j], splat_word(x.q[term] + 4 * j));
        sum += part;
      }
      // Added to two chains, the correction is an operand in memory. In the first place of a chain
      // it goes through a general register, where one chain alone is sooner done.
      if constexpr (kZero != 0 && kScales == 1)
        sum += splat_word(&x.minus_8_totals[term]) * (kZero / 8);
      totals[term] = __builtin_convertvector(sum, Floats);
    }
    return terms == 1 ? totals[0] : join_terms(totals[0], totals[terms - 1]);
  }
  template <std::size_t count>
  static void run_with_words(const unsigned char* tile, std::size_t columns, Tokens tokens) {
    static_assert(kParts == 1);
    Floats results[count] = {};
    const Prefetching prefetching = count == 1 ? prefetching_of_one() : Prefetching{};
    for (std::size_t b = 0; b < columns / kBlockColumns; ++b) {
      const Format of_tile(tile, b, 0);
      of_tile.prefetch(prefetching);
      auto end = end_of<terms>(of_tile);
      if constexpr (kScales == 2 && count == 1) {
        // Before the words: on Zen 4, weights in memory are read faster in this order.
        for (Floats& scale : end.scale) compute_here(scale);
        forget_memory();
      }
      Words words[2 * kDotWords];
      for (std::size_t j = 0; j < 2 * kDotWords; ++j) words[j] = of_tile.word(j);
      TENSOR_OPS_UNROLLED_FOR (token, count) {
        const auto& x = block(tokens, token, b);
        end.add_totals(results[token], x, [&](std::size_t scale) TENSOR_OPS_INLINE_LAMBDA {
          return total_of(words, x, scale);
        });
      }
    }
    for (std::size_t t = 0; t < count; ++t) tokens.store(t, 0, results[t]);
  }
#endif

  template <std::size_t count>
  static void run(const unsigned char* tile, std::size_t columns, Tokens tokens) {
#if defined(__AVX512VNNI__)
    if constexpr (!kJoined) return run_with_words<count>(tile, columns, tokens);
#endif
    run_by_words<count>(tile, columns, tokens);
  }

  template <std::size_t count>
  static void run_by_words(const unsigned char* tile, std::size_t columns, Tokens tokens) {
    constexpr bool are_few = kSumsInMemory && count * kTogether <= 2;
    Partial<count> partial{};
    Partial<count>& kept = kSumsInMemory && !are_few ? *in_memory(&partial) : partial;
    const Prefetching prefetching = count == 1 ? prefetching_of_one() : Prefetching{};
    for (std::size_t b = 0; b < columns / kBlockColumns; ++b) {
      Format(tile, b, 0).prefetch(prefetching);
      TENSOR_OPS_UNROLLED_FOR (group, kParts / kTogether) {
        const std::size_t first = group * kTogether;
        Sums sums[count];
        sum_scale(sums, tile, b, first, 0, tokens);
        if constexpr (kScales == 2) {
          TENSOR_OPS_UNROLLED_FOR (token, count) {
            TENSOR_OPS_UNROLLED_FOR (v, kTogether) {
              kept.first_scale[token][v] = sums[token].total(v);
            }
          }
          sum_scale(sums, tile, b, first, 1, tokens);
        }
        TENSOR_OPS_UNROLLED_FOR (v, kTogether) {
          forget_memory();
          const auto end = end_of<terms>(Format(tile, b, first + v));
          TENSOR_OPS_UNROLLED_FOR (token, count) {
            Floats result = kept.results[token][first + v];
            end.add_totals(
                result, block(tokens, token, b), [&](std::size_t scale) TENSOR_OPS_INLINE_LAMBDA {
                  return scale + 1 == kScales ? sums[token].total(v) : kept.first_scale[token][v];
                });
            compute_here(result);
            kept.results[token][first + v] = result;
          }
        }
      }
    }
    // Constant indices, as everywhere here, let the compiler keep these sums in registers. A loop
    // here makes GCC keep one of them on the stack.
    repeat<count>([&](std::size_t token) TENSOR_OPS_INLINE_LAMBDA {
      TENSOR_OPS_UNROLLED_FOR (part, kParts) {
        tokens.store(token, part, kept.results[token][part]);
      }
    });
  }

 private:
  template <std::size_t count>
  struct Partial {
    Floats results[count][kParts];
    Floats first_scale[count][kTogether];
  };

  static TENSOR_OPS_INLINE const Block& block(Tokens tokens, std::size_t token, std::size_t b) {
    return reinterpret_cast<const Block*>(tokens.at(token))[b];
  }
};

template <class Format, std::size_t terms>
constexpr ProductKernel int8_product{int8_bytes<terms>, in_rows<prepare_int8<terms>>,
                                     multiply<IntegerProduct<Format, terms>>};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
