// Sums of products of integers over the columns of one scale, exact, in the way that is fastest on
// the level. A template of this file holds those of a token, for as many vectors of rows as are
// taken together:
//
//   start(x, scale): what is there before the first product
//   add(w, x, step): adds the products of a step, whose weights are weights(word, step)
//   total(vector): the sums as floating-point numbers, 254 times those of the activations if these
//     have two terms. They are rounded once at most, so that they are the same on every level.
//
// A word, of four columns, takes kSteps steps.
#pragma once

#include "decode/products/multiply.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// How many vectors of a tile are taken together: an activation is loaded once for both.
constexpr std::size_t kTogether = kParts > 1 ? 2 : 1;

// 254 times the sum of an activation's two terms: it is rounded once, as a sum of integers that is
// converted, since either sum is below 2^24 and exact.
TENSOR_OPS_INLINE Floats join_terms(Floats first, Floats second) {
  return fma(first, broadcast(254), second);
}

// Takes weights as bytes, by dot().
template <class Format, std::size_t terms>
class DotSums {
 public:
  static constexpr std::size_t kSteps = 1;
  static constexpr bool kSigned = Format::kLargest > 127 && !kTakesAnyByte;
  static constexpr int kZero = kSigned ? 0 : Format::kZero;

  static TENSOR_OPS_INLINE Words weights(Words word, std::size_t) {
    return kSigned ? signed_bytes(word) : word;
  }
  static TENSOR_OPS_INLINE Ints start_of(const Int8Block<terms>& x, std::size_t term,
                                         std::size_t scale) {
    if constexpr (kZero == 0) return Ints{};
    const std::int32_t sum =
        Format::kScales == 1 ? x.minus_8_totals[term] : x.minus_8_sums[term][scale];
    return splat<Ints>(sum) * (kZero / 8);
  }
  TENSOR_OPS_INLINE void start(const Int8Block<terms>& x, std::size_t scale) {
    for (std::size_t term = 0; term < terms; ++term)
      for (Ints& sum : sums_[term]) sum = start_of(x, term, scale);
  }
  TENSOR_OPS_INLINE void add(const Words (&w)[kTogether], const Int8Block<terms>& x,
                             std::size_t step) {
    for (std::size_t term = 0; term < terms; ++term) {
      const Ints activations = splat_word(x.q[term] + 4 * step);
      for (std::size_t v = 0; v < kTogether; ++v) {
        sums_[term][v] = dot(sums_[term][v], w[v], activations);
        compute_here(sums_[term][v]);
      }
    }
  }
  TENSOR_OPS_INLINE Floats total(std::size_t v) const {
    const Floats first = __builtin_convertvector(sums_[0][v], Floats);
    if constexpr (terms == 1) return first;
    return join_terms(first, __builtin_convertvector(sums_[terms - 1][v], Floats));
  }

 private:
  Ints sums_[terms][kTogether];
};

#if TENSOR_OPS_JOINED_TERMS

// Sums of int16, which hold both terms of an activation, in 32 bits: half of a word at a time.
template <class Format>
class JoinedSums {
#if defined(__AVX512VNNI__)
  // One chain of products for each of eight tokens is not enough to keep the multipliers busy. What
  // else a format needs leaves registers for a second one, or does not.
  static constexpr bool kNeedsFewRegisters =
      Format::kScales == 1 && !(Format::kHasMinimum && Format::kLargest > 15);
  static constexpr std::size_t kChains = kNeedsFewRegisters ? 2 : 1;
#else
  static constexpr std::size_t kChains = 1;
#endif

 public:
  static constexpr std::size_t kSteps = 2;

  static TENSOR_OPS_INLINE Words weights(Words word, std::size_t step) {
    return step == 0 ? even_bytes(word) : shifted_pairs(word, 8);
  }
  TENSOR_OPS_INLINE void start(const PairBlock<2>& x, std::size_t scale) {
    Ints start{};
    if constexpr (Format::kZero != 0) {
      start = splat<Ints>(Format::kScales == 1 ? x.minus_8_total : x.minus_8_sums[scale]);
      compute_here(start);  // GCC would multiply before it fills the lanes
      start *= Format::kZero / 8;
    }
    for (auto& sums : sums_) {
      sums[0] = start;
      for (std::size_t c = 1; c < kChains; ++c) sums[c] = Ints{};
    }
  }
  TENSOR_OPS_INLINE void add(const Words (&w)[kTogether], const PairBlock<2>& x, std::size_t step) {
    const auto activations = bit_cast<Shorts>(splat_word(x.q + 2 * step));
    for (std::size_t v = 0; v < kTogether; ++v) {
      Ints& sum = sums_[v][step % kChains];
      sum = dot_shorts(sum, bit_cast<Shorts>(w[v]), activations);
      compute_here(sum);
    }
  }
  TENSOR_OPS_INLINE Floats total(std::size_t v) const {
    Ints sum = sums_[v][0];
    for (std::size_t c = 1; c < kChains; ++c) sum += sums_[v][c];
    return __builtin_convertvector(sum, Floats);
  }

 private:
  Ints sums_[kTogether][kChains];
};

#endif
#if TENSOR_OPS_X86_PAIRS

// Sums of bytes in 16 bits. They hold all products of a scale's columns once kZero is subtracted
// from weights, or 16 from those up to 31 without a kZero: what is subtracted is added in advance,
// for the activations, and the sums wrap until the last product is there.
template <class Format>
class ShortSums {
 public:
  static constexpr std::size_t kSteps = 1;

  static TENSOR_OPS_INLINE Words weights(Words word, std::size_t) { return word; }
  TENSOR_OPS_INLINE void start(const PairBlock<1>& x, std::size_t scale) {
    Shorts start{};
    if constexpr (kSubtracted != 0) {
      const auto pairs = bit_cast<Shorts>(
          splat_word(Format::kScales == 1 ? x.minus_8_pairs_of_all : x.minus_8_pairs[scale]));
      start = pairs * static_cast<std::int16_t>(kSubtracted / 8);
    }
    for (Shorts& sum : sums_) sum = start;
    if constexpr (kSubtracted != Format::kZero) added_ = &x.sum_times_16;
  }
  TENSOR_OPS_INLINE void add(const Words (&w)[kTogether], const PairBlock<1>& x, std::size_t step) {
    const Ints activations = splat_word(x.q + 4 * step);
    for (std::size_t v = 0; v < kTogether; ++v) {
      sums_[v] += sums_of_two(w[v], activations);
      compute_here(sums_[v]);
    }
  }
  TENSOR_OPS_INLINE Floats total(std::size_t v) const {
    Ints sum = sums_of_two_shorts(sums_[v], splat<Shorts>(1));
    if constexpr (kSubtracted != Format::kZero) sum += splat<Ints>(*added_);
    return __builtin_convertvector(sum, Floats);
  }

 private:
  static constexpr int kProducts = 2 * 127 * 2 * kDotWords / Format::kScales;
  static constexpr int kAbove = Format::kLargest - Format::kZero;
  static constexpr bool kFit =
      kProducts * (kAbove > Format::kZero ? kAbove : Format::kZero) <= 32767;
  static constexpr int kSubtracted = kFit ? Format::kZero : 16;
  static_assert(kFit || (Format::kLargest == 31 && Format::kZero == 0 && Format::kScales == 1));

  Shorts sums_[kTogether];
  const std::int32_t* added_;
};

// Sums of signed bytes in 32 bits.
template <class Format>
class ByteSums {
 public:
  static constexpr std::size_t kSteps = 1;

  static TENSOR_OPS_INLINE Words weights(Words word, std::size_t) { return signed_bytes(word); }
  TENSOR_OPS_INLINE void start(const PairBlock<1>&, std::size_t) {
    for (Ints& sum : sums_) sum = Ints{};
  }
  TENSOR_OPS_INLINE void add(const Words (&w)[kTogether], const PairBlock<1>& x, std::size_t step) {
    const Ints activations = splat_word(x.q + 4 * step);
    for (std::size_t v = 0; v < kTogether; ++v) {
      sums_[v] += sums_of_two_shorts(sums_of_two_signed(w[v], activations), splat<Shorts>(1));
      compute_here(sums_[v]);
    }
  }
  TENSOR_OPS_INLINE Floats total(std::size_t v) const {
    return __builtin_convertvector(sums_[v], Floats);
  }

 private:
  Ints sums_[kTogether];
};

template <class Format, std::size_t terms, class Block>
using IntegerSums = std::conditional_t<
    terms == 2, JoinedSums<Format>,
    std::conditional_t<(Format::kLargest > 127), ByteSums<Format>, ShortSums<Format>>>;

#elif TENSOR_OPS_JOINED_TERMS

template <class Format, std::size_t terms, class Block>
using IntegerSums = std::conditional_t<std::is_same_v<Block, PairBlock<2>>, JoinedSums<Format>,
                                       DotSums<Format, terms>>;

#elif defined(__aarch64__) && !defined(__ARM_FEATURE_DOTPROD)

// Sums of bytes in 16 bits, for as many words as these hold: all of a scale, if weights are not of
// 8 bits. The four products of a lane are added when 16 bits are full.
template <class Format, std::size_t terms>
class WideningSums {
  using Dots = DotSums<Format, terms>;

 public:
  static constexpr std::size_t kSteps = 1;

  static TENSOR_OPS_INLINE Words weights(Words word, std::size_t step) {
    return Dots::weights(word, step);
  }
  TENSOR_OPS_INLINE void start(const Int8Block<terms>& x, std::size_t scale) {
    for (std::size_t term = 0; term < terms; ++term)
      for (std::size_t v = 0; v < kTogether; ++v) {
        sums_[term][v] = Dots::start_of(x, term, scale);
        low_[term][v] = high_[term][v] = int16x8_t{};
      }
  }
  TENSOR_OPS_INLINE void add(const Words (&w)[kTogether], const Int8Block<terms>& x,
                             std::size_t step) {
    const std::size_t before = step % kWords;  // steps of the scale
    for (std::size_t term = 0; term < terms; ++term) {
      const auto activations = bit_cast<int8x16_t>(splat_word(x.q[term] + 4 * step));
      for (std::size_t v = 0; v < kTogether; ++v) {
        int16x8_t &low = low_[term][v], &high = high_[term][v];
        if (before > 0 && before % kFit == 0) {
          sums_[term][v] = sum(term, v);
          compute_here(sums_[term][v]);
          low = high = int16x8_t{};
        }
        const auto weights = bit_cast<int8x16_t>(w[v]);
        low = vmlal_s8(low, vget_low_s8(weights), vget_low_s8(activations));
        high = vmlal_high_s8(high, weights, activations);
        compute_here(low);
        compute_here(high);
      }
    }
  }
  TENSOR_OPS_INLINE Floats total(std::size_t v) const {
    const Floats first = __builtin_convertvector(sum(0, v), Floats);
    if constexpr (terms == 1) return first;
    return join_terms(first, __builtin_convertvector(sum(terms - 1, v), Floats));
  }

 private:
  static constexpr std::size_t kWords = 2 * kDotWords / Format::kScales;
  static constexpr std::size_t kFit = 32767 / (127 * (Dots::kSigned ? 128 : Format::kLargest));

  TENSOR_OPS_INLINE Ints sum(std::size_t term, std::size_t v) const {
    return sums_[term][v] +
           bit_cast<Ints>(vpaddq_s32(vpaddlq_s16(low_[term][v]), vpaddlq_s16(high_[term][v])));
  }

  Ints sums_[terms][kTogether];
  int16x8_t low_[terms][kTogether], high_[terms][kTogether];
};

template <class Format, std::size_t terms, class Block>
using IntegerSums = WideningSums<Format, terms>;

#else

template <class Format, std::size_t terms, class Block>
using IntegerSums = DotSums<Format, terms>;

#endif

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
