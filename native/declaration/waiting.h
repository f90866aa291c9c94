// A thread that waits for others: a hint to the processor in each turn, and its processor time.
#pragma once

#include <chrono>

#if !defined(_WIN32)
#include <time.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace tensor_ops {

inline void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// On Windows, which measures it too roughly, all time counts as used.
inline std::chrono::nanoseconds thread_cpu_time() {
#if defined(_WIN32)
  return std::chrono::steady_clock::now().time_since_epoch();
#else
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
#endif
}

}  // namespace tensor_ops
