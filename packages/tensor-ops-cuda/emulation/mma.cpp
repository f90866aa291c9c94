// Products of small matrices by a warp, with operands in the lanes' registers as PTX lays them out.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <mutex>

#include "host.h"
#include "scheduler.h"

namespace emulation {
namespace {

template <class Sum>
struct Operands {
  Sum* sums;
  std::uint32_t a[4], b[2];
};

template <class Element>
struct Shape {
  static constexpr int kM = 16, kN = 8, kK = 32 / sizeof(Element);
  static constexpr int kInWord = 4 / sizeof(Element);
};

// The rows of a (16 x K) and the columns of b (K x 8), as numbers.
template <class Element, class Number>
struct Matrices {
  using S = Shape<Element>;
  Number a[S::kM][S::kK], b[S::kN][S::kK];

  // Lane l has rows l / 4 and l / 4 + 8 of a, and column l / 4 of b. Of the columns of a, and of
  // the rows of b, it has the word l % 4 of either half.
  template <class Convert>
  void take(int lane, const std::uint32_t (&a_words)[4], const std::uint32_t (&b_words)[2],
            Convert convert) {
    for (int half = 0; half < 2; ++half) {
      const int k = half * S::kK / 2 + lane % 4 * S::kInWord;
      for (int i = 0; i < S::kInWord; ++i) {
        const int shift = 8 * static_cast<int>(sizeof(Element)) * i;
        const auto element = [&](std::uint32_t word) {
          return convert(static_cast<Element>(word >> shift));
        };
        a[lane / 4][k + i] = element(a_words[2 * half]);
        a[lane / 4 + 8][k + i] = element(a_words[2 * half + 1]);
        b[lane / 4][k + i] = element(b_words[half]);
      }
    }
  }
};

template <class Sum>
const Operands<Sum>& operands_of(void* lane) {
  if (!lane) fail_grid("mma by a part of a warp");
  return *static_cast<const Operands<Sum>*>(lane);
}

template <class Element, class Number, class Sum, class Convert>
Matrices<Element, Number> taken(void* const* lanes, Convert convert) {
  Matrices<Element, Number> matrices;
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = operands_of<Sum>(lanes[lane]);
    matrices.take(lane, own.a, own.b, convert);
  }
  return matrices;
}

// The sum of a row and a column is one of four of a lane.
template <class Sum>
Sum& sum_at(void* const* lanes, int row, int column) {
  const int lane = row % 8 * 4 + column / 2;
  return operands_of<Sum>(lanes[lane]).sums[row / 8 * 2 + column % 2];
}

void multiply_s8(void* const* lanes) {
  using S = Shape<std::uint8_t>;
  const auto matrices = taken<std::uint8_t, std::int32_t, int>(
      lanes, [](std::uint8_t bits) { return static_cast<std::int8_t>(bits); });
  for (int row = 0; row < S::kM; ++row)
    for (int column = 0; column < S::kN; ++column) {
      int& sum = sum_at<int>(lanes, row, column);
      std::int64_t total = sum;
      for (int k = 0; k < S::kK; ++k) total += matrices.a[row][k] * matrices.b[column][k];
      sum = static_cast<int>(total);
    }
}

// The sums of floating-point products that NVIDIA's tensor cores make, as others have measured
// them: Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ
// Computer Science 7:e330 (2021), of Volta, Turing and Ampere, and Khattak and Mikaitis, "Accurate
// models of NVIDIA tensor cores", arXiv:2512.07004 (2025), of Hopper and Blackwell too.
//
// Products are exact. A number of them and the sum so far are aligned to the largest exponent among
// them, that of a product being the sum of its factors' exponents. Of each, what lies below the
// last digit that float32 has with this exponent, and a few extra bits, is cut off; the rest is
// added exactly, and the result cut off to float32. How many products and extra bits: SumRule.
using Half = Shape<std::uint16_t>;
constexpr int kFloatDigits = 23, kLeastFloat = -126;  // behind the point, and the least exponent
constexpr int kNoExponent = -1024;                    // of 0
constexpr int kMostExtraBits = 5;                     // with which products fit in an int

int exponent_of(float x, int least) {
  if (x == 0) return kNoExponent;
  const int exponent = static_cast<int>(__float_as_uint(x) >> kFloatDigits & 255) - 127;
  return exponent > least ? exponent : least;
}

double power_of_2(int exponent) { return __longlong_as_double((exponent + 1023LL) << 52); }

float cut_off(double x) {
  const auto nearest = static_cast<float>(x);
  const bool is_beyond = std::isfinite(nearest) && std::fabs(double{nearest}) > std::fabs(x);
  return is_beyond ? __uint_as_float(__float_as_uint(nearest) - 1) : nearest;
}

// Numbers and their exponents, for products of all columns at once. What is not finite counts as 0.
template <int kRows, int kColumns>
struct Aligned {
  double number[kRows][kColumns];
  int exponent[kRows][kColumns];
  bool is_finite = true;

  void set(int row, int column, float x, int least) {
    is_finite &= std::isfinite(x);
    if (!std::isfinite(x)) x = 0;
    number[row][column] = x;
    exponent[row][column] = exponent_of(x, least);
  }
};
using LeftOperand = Aligned<Half::kM, Half::kK>;
using RightOperand = Aligned<Half::kK, Half::kN>;

// Adds the products of some columns of a row of a, and of the same rows of b, to the row's sums.
void add_products(const LeftOperand& a, const RightOperand& b, int row, int first,
                  const SumRule& rule, float (&sums)[Half::kN]) {
  int largest[Half::kN];
  double up[Half::kN], total[Half::kN];
  for (int n = 0; n < Half::kN; ++n) largest[n] = exponent_of(sums[n], kLeastFloat);
  for (int k = first; k < first + rule.products; ++k)
    for (int n = 0; n < Half::kN; ++n) {
      const int exponent = a.exponent[row][k] + b.exponent[k][n];
      largest[n] = exponent > largest[n] ? exponent : largest[n];
    }
  for (int n = 0; n < Half::kN; ++n) {
    // The least exponent of a product is that of two subnormal numbers of bfloat16.
    const int exponent = largest[n] > 2 * kLeastFloat ? largest[n] : 2 * kLeastFloat;
    up[n] = power_of_2(kFloatDigits + rule.extra_bits - exponent);
    total[n] = std::isfinite(sums[n]) ? static_cast<int>(sums[n] * up[n]) : 0;
  }
  for (int k = first; k < first + rule.products; ++k)
    for (int n = 0; n < Half::kN; ++n)
      total[n] += static_cast<int>(a.number[row][k] * b.number[k][n] * up[n]);
  for (int n = 0; n < Half::kN; ++n)
    if (std::isfinite(sums[n])) sums[n] = cut_off(total[n] / up[n]);
}

// Where an operand is infinite or NaN, a sum is what IEEE 754 says.
float unbounded_sum(const Matrices<std::uint16_t, float>& matrices, int row, int column,
                    double sum) {
  for (int k = 0; k < Half::kK; ++k)
    sum += double{matrices.a[row][k]} * double{matrices.b[column][k]};
  return static_cast<float>(sum);
}

template <class Convert>
void multiply_floats(void* const* lanes, int least_exponent, Convert convert) {
  const auto matrices = taken<std::uint16_t, float, float>(lanes, convert);
  LeftOperand a;
  RightOperand b;
  for (int k = 0; k < Half::kK; ++k) {
    for (int row = 0; row < Half::kM; ++row) a.set(row, k, matrices.a[row][k], least_exponent);
    for (int n = 0; n < Half::kN; ++n) b.set(k, n, matrices.b[n][k], least_exponent);
  }
  const SumRule& rule = choices().sum_rule;
  for (int row = 0; row < Half::kM; ++row) {
    float before[Half::kN], sums[Half::kN];
    bool is_finite = a.is_finite && b.is_finite;
    for (int n = 0; n < Half::kN; ++n) {
      before[n] = sum_at<float>(lanes, row, n);
      is_finite &= std::isfinite(before[n]);
      sums[n] = std::isfinite(before[n]) ? before[n] : 0;
    }
    for (int first = 0; first < Half::kK; first += rule.products)
      add_products(a, b, row, first, rule, sums);
    for (int n = 0; n < Half::kN; ++n) {
      const float unbounded = is_finite ? 0 : unbounded_sum(matrices, row, n, before[n]);
      sum_at<float>(lanes, row, n) = std::isfinite(unbounded) ? sums[n] : unbounded;
    }
  }
}

void multiply_f16(void* const* lanes) {
  multiply_floats(lanes, -14, [](std::uint16_t bits) { return __half2float({bits}); });
}
void multiply_bf16(void* const* lanes) {
  multiply_floats(lanes, kLeastFloat, [](std::uint16_t bits) { return __bfloat162float({bits}); });
}

template <class Sum>
void multiply_together(Sum* sums, uint4 a, uint2 b, Collective work, int line) {
  Operands<Sum> own{sums, {a.x, a.y, a.z, a.w}, {b.x, b.y}};
  do_together(&own, work, 0, line);
}

}  // namespace

void mma_s8(int (&sums)[4], uint4 a, uint2 b, int line) {
  multiply_together(sums, a, b, multiply_s8, line);
}
void mma_f16(float (&sums)[4], uint4 a, uint2 b, int line) {
  multiply_together(sums, a, b, multiply_f16, line);
}
void mma_bf16(float (&sums)[4], uint4 a, uint2 b, int line) {
  multiply_together(sums, a, b, multiply_bf16, line);
}

}  // namespace emulation

using namespace emulation;

extern "C" cudaError_t emulatedSetSumRule(int products, int extra_bits) {
  const std::lock_guard guard(lock());
  const bool is_part = products > 0 && Half::kK % products == 0;
  if (!is_part || extra_bits < 0 || extra_bits > kMostExtraBits) return cudaErrorInvalidValue;
  choices().sum_rule = {products, extra_bits};
  return cudaSuccess;
}
