// The processor time of the calling thread.
#pragma once

#include <chrono>

#if !defined(_WIN32)
#include <time.h>
#endif

namespace tensor_ops {

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
