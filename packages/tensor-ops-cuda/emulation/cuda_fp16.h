// float16 as CUDA's header of this name has it.
#pragma once

#include <cuda_runtime.h>

struct __half {
  std::uint16_t bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }

inline float __half2float(__half value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16, rest = value.bits & 0x7fffu;
  if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // The bits of a float16, moved to where a float has them, are a number 2^112 times too small,
  // also if it is subnormal.
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 13) * 0x1p112f));
}

inline __half __float2half_rn(float value) {
  const std::uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u;
  const float size = __uint_as_float(bits & 0x7fffffffu);
  if (size != size) return {0x7fff};
  if (size >= 65520.0f) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  // Adding a power of two rounds to the last place that a float16 of this size has.
  const int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
  const float place = std::ldexp(1.0f, exponent + 13);
  const float rounded = (size + place) - place;
  const float scaled = rounded * 0x1p-112f;
  return {static_cast<std::uint16_t>(sign | __float_as_uint(scaled) >> 13)};
}
