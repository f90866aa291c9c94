// Functions of the device that the host compiler does not know.
#pragma once

#include <cuda_runtime.h>

// Every function of a kernel is inlined, so that its variables stay in registers.
#define DEVICE __device__ __forceinline__

namespace tensor_ops {

#ifdef __CUDACC__

// The memory that the launch reserved for each block.
DEVICE void* shared_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}

// 2^x to 2 ULP; subnormal numbers count as 0 (CUDA C++ Programming Guide, intrinsic functions).
DEVICE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x to 1 ULP; subnormal numbers count as 0.
DEVICE float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Nanoseconds since some time in the past, in steps of up to a microsecond.
DEVICE unsigned long long global_timer() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Makes the compiler treat 16 bytes as if they had changed.
template <class T>
DEVICE void make_opaque(T& value) {
  static_assert(sizeof(T) == 16);
  auto& words = reinterpret_cast<uint4&>(value);
  asm("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
}

#else

inline void* shared_memory() { return emulation::shared_memory(); }
inline unsigned long long global_timer() { return emulation::global_timer(); }
inline float fast_exp2(float x) { return std::exp2(x); }
inline float fast_reciprocal(float x) { return 1 / x; }
template <class T>
void make_opaque(T&) {}

#endif

// This pass of the compiler can make code of thread block clusters.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define HAS_CLUSTERS 1
#else
#define HAS_CLUSTERS 0
#endif

}  // namespace tensor_ops
