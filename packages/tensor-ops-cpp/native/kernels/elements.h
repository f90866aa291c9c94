// The element types: how one is stored, the type it is computed in, and the conversions.
#pragma once

#include "kernels/arithmetic.h"
#include "launch/run.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Float32 {
  using Storage = float;
  using Compute = float;
  static TENSOR_OPS_INLINE float load(float x) { return x; }
  static TENSOR_OPS_INLINE float store(float x) { return x; }
};

struct Float64 {
  using Storage = double;
  using Compute = double;
  static TENSOR_OPS_INLINE double load(double x) { return x; }
  static TENSOR_OPS_INLINE double store(double x) { return x; }
};

// The upper half of a float32. Rounds to nearest even; NaN stays NaN and subnormals are kept.
struct BFloat16 {
  using Storage = std::uint16_t;
  using Compute = float;
  static TENSOR_OPS_INLINE float load(std::uint16_t x) {
    return bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
  }
  static TENSOR_OPS_INLINE std::uint16_t store(float x) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
    const std::uint32_t quiet = bits | 0x400000;
    return static_cast<std::uint16_t>((x == x ? rounded : quiet) >> 16);
  }
};

// IEEE binary16, converted with integer and float32 arithmetic: compilers do not vectorise _Float16
// casts, and this also serves levels without F16C. After Maratyszcza's FP16 library.
struct Float16 {
  using Storage = std::uint16_t;
  using Compute = float;
  static TENSOR_OPS_INLINE float load(std::uint16_t x) {
    const std::uint32_t word = static_cast<std::uint32_t>(x) << 16;
    const std::uint32_t sign = word & 0x80000000u;
    const std::uint32_t twice = word + word;
    // Exponent rebased by 224, then scaled by 2^-112: Inf and NaN end up with the largest exponent.
    const float normal = bit_cast<float>((twice >> 4) + (0xE0u << 23)) * 0x1p-112f;
    const float subnormal = bit_cast<float>((twice >> 17) | (126u << 23)) - 0.5f;
    const std::uint32_t bits = bit_cast<std::uint32_t>(twice < (1u << 27) ? subnormal : normal);
    return bit_cast<float>(sign | bits);
  }
  static TENSOR_OPS_INLINE std::uint16_t store(float x) {
    const std::uint32_t word = bit_cast<std::uint32_t>(x);
    const std::uint32_t twice = word + word;
    const std::uint32_t sign = word & 0x80000000u;
    // Saturates to infinity, then adds a power of two that makes float32 round at binary16's last
    // bit.
    const float scaled = (magnitude(x) * 0x1p112f) * 0x1p-110f;
    const std::uint32_t exponent = twice & 0xFF000000u;
    const std::uint32_t bias = exponent < 0x71000000u ? 0x71000000u : exponent;
    const std::uint32_t sum =
        bit_cast<std::uint32_t>(bit_cast<float>((bias >> 1) + 0x07800000u) + scaled);
    const std::uint32_t finite = ((sum >> 13) & 0x7C00u) + (sum & 0x0FFFu);
    return static_cast<std::uint16_t>((sign >> 16) | (twice > 0xFF000000u ? 0x7E00u : finite));
  }
};

// One kernel for each dtype, in the order of DType.
template <template <class> class KernelFor>
constexpr DTypeKernels each_dtype() {
  return {{KernelFor<Float32>::run, KernelFor<Float16>::run, KernelFor<BFloat16>::run,
           KernelFor<Float64>::run}};
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
