// The element types: how one is stored, the type it is computed in, and the conversions, of one and
// of a vector of them.
#pragma once

#include "kernels/vector.h"
#include "launch/run.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Elements that are stored in the type that they are computed in.
template <class T>
struct Float {
  using Storage = T;
  using Compute = T;
  using Packed = Vector<T>;
  static TENSOR_OPS_INLINE T load(T x) { return x; }
  static TENSOR_OPS_INLINE T store(T x) { return x; }
  static TENSOR_OPS_INLINE Packed widen(Packed x) { return x; }
  static TENSOR_OPS_INLINE Packed narrow(Packed x) { return x; }
};
using Float32 = Float<float>;
using Float64 = Float<double>;

// The upper half of a float32. Rounds to nearest even; NaN stays NaN and subnormals are kept.
struct BFloat16 {
  using Storage = std::uint16_t;
  using Compute = float;
  using Packed = Halves;
  static TENSOR_OPS_INLINE float load(std::uint16_t x) {
    return bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
  }
  static TENSOR_OPS_INLINE std::uint16_t store(float x) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
    const std::uint32_t quiet = bits | 0x400000;
    return static_cast<std::uint16_t>((x == x ? rounded : quiet) >> 16);
  }
  static TENSOR_OPS_INLINE Floats widen(Halves x) {
    return bit_cast<Floats>(__builtin_convertvector(x, BitsOf<Floats>) << 16);
  }
  static TENSOR_OPS_INLINE Halves narrow(Floats x) {
#if defined(__AVX512F__)
    return bit_cast<Halves>(_mm512_cvtepi32_epi16(bit_cast<__m512i>(rounded(x) >> 16)));
#else
    return __builtin_convertvector(rounded(x) >> 16, Halves);
#endif
  }
  // Two vectors whose elements take turns: a mask and a shift, instead of a shuffle, separate them.
  using PackedPair = BitsOf<Floats>;
  static TENSOR_OPS_INLINE Pair<Floats> widen_pair(PackedPair x) {
    return {bit_cast<Floats>(x << 16), bit_cast<Floats>(x & 0xFFFF0000u)};
  }
  static TENSOR_OPS_INLINE PackedPair narrow_pair(Pair<Floats> x) {
    return rounded(x.hi) >> 16 | (rounded(x.lo) & 0xFFFF0000u);
  }

 private:
  // The upper half is what x rounds to. A NaN stays one: those of the kernels come from bfloat16
  // or from the arithmetic, and have no low bits that could carry.
  static TENSOR_OPS_INLINE BitsOf<Floats> rounded(Floats x) {
    const BitsOf<Floats> all = bits(x);
    return all + 0x7FFF + ((all >> 16) & 1);
  }
};

// IEEE binary16. One element, and a vector where the level has no instruction, is converted with
// integer and float32 arithmetic, after Maratyszcza's FP16 library.
struct Float16 {
  using Storage = std::uint16_t;
  using Compute = float;
  using Packed = Halves;
  static TENSOR_OPS_INLINE float load(std::uint16_t x) { return widened<float>(std::uint32_t{x}); }
  static TENSOR_OPS_INLINE std::uint16_t store(float x) {
    return static_cast<std::uint16_t>(narrowed<std::uint32_t>(x));
  }
#if defined(__AVX512F__)
  static TENSOR_OPS_INLINE Floats widen(Halves x) { return _mm512_cvtph_ps(bit_cast<__m256i>(x)); }
  static TENSOR_OPS_INLINE Halves narrow(Floats x) {
    return bit_cast<Halves>(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#elif defined(__F16C__)
  static TENSOR_OPS_INLINE Floats widen(Halves x) { return _mm256_cvtph_ps(bit_cast<__m128i>(x)); }
  static TENSOR_OPS_INLINE Halves narrow(Floats x) {
    return bit_cast<Halves>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__aarch64__)
  static TENSOR_OPS_INLINE Floats widen(Halves x) { return vcvt_f32_f16(bit_cast<float16x4_t>(x)); }
  static TENSOR_OPS_INLINE Halves narrow(Floats x) { return bit_cast<Halves>(vcvt_f16_f32(x)); }
#else
  static TENSOR_OPS_INLINE Floats widen(Halves x) {
    return widened<Floats>(__builtin_convertvector(x, BitsOf<Floats>));
  }
  static TENSOR_OPS_INLINE Halves narrow(Floats x) {
    return __builtin_convertvector(narrowed<BitsOf<Floats>>(x), Halves);
  }
#endif

 private:
  // Widens one number or a vector, whose bits are in the lower halves of Bits.
  template <class F, class Bits>
  static TENSOR_OPS_INLINE F widened(Bits x) {
    const Bits word = x << 16, sign = word & 0x80000000u, twice = word + word;
    // Exponent rebased by 224, then scaled by 2^-112: Inf and NaN end up with the largest exponent.
    const F normal = bit_cast<F>((twice >> 4) + (0xE0u << 23)) * 0x1p-112f;
    const F subnormal = bit_cast<F>((twice >> 17) | (126u << 23)) - 0.5f;
    return bit_cast<F>(sign |
                       (twice < (1u << 27) ? bit_cast<Bits>(subnormal) : bit_cast<Bits>(normal)));
  }
  template <class Bits, class F>
  static TENSOR_OPS_INLINE Bits narrowed(F x) {
    const Bits word = bit_cast<Bits>(x), sign = word & 0x80000000u, twice = word + word;
    // Saturates to infinity, then adds a power of two that makes float32 round at binary16's last
    // bit.
    const F scaled = (bit_cast<F>(word & 0x7FFFFFFFu) * 0x1p112f) * 0x1p-110f;
    const Bits exponent = twice & 0xFF000000u;
    const Bits bias = exponent < 0x71000000u ? Bits{} + 0x71000000u : exponent;
    const Bits sum = bit_cast<Bits>(bit_cast<F>((bias >> 1) + 0x07800000u) + scaled);
    const Bits finite = ((sum >> 13) & 0x7C00u) + (sum & 0x0FFFu);
    return (sign >> 16) | (twice > 0xFF000000u ? Bits{} + 0x7E00u : finite);
  }
};

// The level converts vectors by too many instructions to stand in a kernel at every place where it
// loads or stores.
template <class Element>
#if defined(__F16C__) || defined(__aarch64__)
constexpr bool converts_slowly = false;
#else
constexpr bool converts_slowly = std::is_same_v<Element, Float16>;
#endif

// Vectors are widened and narrowed more cheaply in pairs.
template <class Element>
constexpr bool comes_in_pairs = std::is_same_v<Element, BFloat16>;

template <class Element>
constexpr bool is_half = sizeof(typename Element::Storage) == 2;

template <class Kernel, class = void>
constexpr RowSteps steps_of{};
template <class Kernel>
constexpr RowSteps steps_of<Kernel, std::void_t<decltype(Kernel::steps)>> = Kernel::steps;

template <class Kernel, class = void>
constexpr WriteTotals write_totals_of = nullptr;
template <class Kernel>
constexpr WriteTotals write_totals_of<Kernel, std::void_t<decltype(Kernel::write_totals)>> =
    Kernel::write_totals;

template <class Kernel>
constexpr RowKernel row_kernel{Kernel::run, &steps_of<Kernel>, write_totals_of<Kernel>};

// One kernel for each dtype, in the order of DType.
template <template <class> class KernelFor>
constexpr DTypeKernels each_dtype() {
  return {{{row_kernel<KernelFor<Float32>>, row_kernel<KernelFor<Float16>>,
            row_kernel<KernelFor<BFloat16>>, row_kernel<KernelFor<Float64>>}}};
}

// The same of an op whose parameters, the second type, may be float32 beside a half x.
template <template <class Element, class Parameter> class KernelFor>
constexpr DTypeKernels each_dtype_and_parameters() {
  return {
      {{row_kernel<KernelFor<Float32, Float32>>, row_kernel<KernelFor<Float16, Float16>>,
        row_kernel<KernelFor<BFloat16, BFloat16>>, row_kernel<KernelFor<Float64, Float64>>},
       {{}, row_kernel<KernelFor<Float16, Float32>>, row_kernel<KernelFor<BFloat16, Float32>>}}};
}

// The same where rows, the third type, may be float32 too.
template <template <class Element, class Parameter, class Rows> class KernelFor>
constexpr DTypeKernels each_dtype_parameters_and_rows() {
  return {{{row_kernel<KernelFor<Float32, Float32, Float32>>,
            row_kernel<KernelFor<Float16, Float16, Float16>>,
            row_kernel<KernelFor<BFloat16, BFloat16, BFloat16>>,
            row_kernel<KernelFor<Float64, Float64, Float64>>},
           {{},
            row_kernel<KernelFor<Float16, Float32, Float16>>,
            row_kernel<KernelFor<BFloat16, Float32, BFloat16>>},
           {{},
            row_kernel<KernelFor<Float16, Float16, Float32>>,
            row_kernel<KernelFor<BFloat16, BFloat16, Float32>>},
           {{},
            row_kernel<KernelFor<Float16, Float32, Float32>>,
            row_kernel<KernelFor<BFloat16, Float32, Float32>>}}};
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
