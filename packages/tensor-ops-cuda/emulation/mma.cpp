// Products of small matrices by a warp, with operands in the lanes' registers as PTX lays them out.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device.h"

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

// A sum of floating-point products is rounded once, at the end: GPUs may round more often.
template <class Element, class Number, class Total, class Sum, class Convert>
void multiply(void* const* lanes, Convert convert) {
  Matrices<Element, Number> matrices;
  for (int lane = 0; lane < 32; ++lane) {
    if (!lanes[lane]) fail_grid("mma by a part of a warp");
    const auto& own = *static_cast<const Operands<Sum>*>(lanes[lane]);
    matrices.take(lane, own.a, own.b, convert);
  }
  for (int lane = 0; lane < 32; ++lane) {
    Sum* const sums = static_cast<const Operands<Sum>*>(lanes[lane])->sums;
    for (int i = 0; i < 4; ++i) {
      const Number* const a = matrices.a[lane / 4 + i / 2 * 8];
      const Number* const b = matrices.b[lane % 4 * 2 + i % 2];
      Total total = sums[i];
      for (int k = 0; k < Shape<Element>::kK; ++k)
        total += static_cast<Total>(a[k]) * static_cast<Total>(b[k]);
      sums[i] = static_cast<Sum>(total);
    }
  }
}

void multiply_s8(void* const* lanes) {
  multiply<std::uint8_t, std::int32_t, std::int64_t, int>(
      lanes, [](std::uint8_t bits) { return static_cast<std::int8_t>(bits); });
}
void multiply_f16(void* const* lanes) {
  multiply<std::uint16_t, float, double, float>(
      lanes, [](std::uint16_t bits) { return __half2float({bits}); });
}
void multiply_bf16(void* const* lanes) {
  multiply<std::uint16_t, float, double, float>(
      lanes, [](std::uint16_t bits) { return __bfloat162float({bits}); });
}

template <class Sum>
void multiply_together(Sum* sums, uint4 a, uint2 b, Collective work) {
  Operands<Sum> own{sums, {a.x, a.y, a.z, a.w}, {b.x, b.y}};
  do_together(&own, work);
}

}  // namespace

void mma_s8(int (&sums)[4], uint4 a, uint2 b) { multiply_together(sums, a, b, multiply_s8); }
void mma_f16(float (&sums)[4], uint4 a, uint2 b) { multiply_together(sums, a, b, multiply_f16); }
void mma_bf16(float (&sums)[4], uint4 a, uint2 b) { multiply_together(sums, a, b, multiply_bf16); }

}  // namespace emulation
