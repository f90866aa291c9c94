#include "threads/doorbell.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tensor_ops {

#if defined(__linux__)

// Without a mutex: a thread that wakes up has nothing to wait for, and the one that rings goes on
// with its own work after one call to the system.
void Doorbell::ring(int threads) {
  static_assert(sizeof rings_ == 4, "a futex is 32 bits");
  rings_.fetch_add(threads, std::memory_order_release);
  syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

void Doorbell::wait() {
  for (;;) {
    int rings = rings_.load(std::memory_order_relaxed);
    while (rings > 0)
      if (rings_.compare_exchange_weak(rings, rings - 1, std::memory_order_acquire)) return;
    syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
}

#else

void Doorbell::ring(int threads) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rings_ += threads;
  }
  for (int i = 0; i < threads; ++i) rung_.notify_one();
}

void Doorbell::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  rung_.wait(lock, [this] { return rings_ > 0; });
  --rings_;
}

#endif

}  // namespace tensor_ops
