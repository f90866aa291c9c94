// A counting semaphore, as std::counting_semaphore of C++20 is: threads sleep in acquire().
#pragma once

#if defined(__linux__)
#include <atomic>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace tensor_ops {

class Semaphore {
 public:
  void release(int count);
  void acquire();

 private:
#if defined(__linux__)
  std::atomic<int> count_{0};
#else
  int count_ = 0;
  std::mutex mutex_;
  std::condition_variable released_;
#endif
};

}  // namespace tensor_ops
