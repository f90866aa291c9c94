#include "threads/semaphore.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tensor_ops {

#if defined(__linux__)

// There is no mutex: a thread that wakes up has nothing to wait for, and the one that releases it
// goes on with its own work after one system call.
void Semaphore::release(int count) {
  static_assert(sizeof count_ == 4, "a futex is 32 bits");
  count_.fetch_add(count, std::memory_order_release);
  syscall(SYS_futex, &count_, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void Semaphore::acquire() {
  for (;;) {
    int count = count_.load(std::memory_order_relaxed);
    while (count > 0)
      if (count_.compare_exchange_weak(count, count - 1, std::memory_order_acquire)) return;
    syscall(SYS_futex, &count_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
}

#else

void Semaphore::release(int count) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    count_ += count;
  }
  for (int i = 0; i < count; ++i) released_.notify_one();
}

void Semaphore::acquire() {
  std::unique_lock<std::mutex> lock(mutex_);
  released_.wait(lock, [this] { return count_ > 0; });
  --count_;
}

#endif

}  // namespace tensor_ops
