// Where threads sleep until they are rung for: a counting semaphore, which C++17 lacks.
#pragma once

#if defined(__linux__)
#include <atomic>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace tensor_ops {

class Doorbell {
 public:
  // Lets this number of threads go on, waiting ones or those that will wait.
  void ring(int threads);
  void wait();

 private:
#if defined(__linux__)
  std::atomic<int> rings_{0};
#else
  int rings_ = 0;
  std::mutex mutex_;
  std::condition_variable rung_;
#endif
};

}  // namespace tensor_ops
