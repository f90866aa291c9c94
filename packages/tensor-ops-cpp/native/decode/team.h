// A team of threads that lives as long as an executable. Inside a job nobody sleeps; between jobs
// the threads spin for a moment, then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "threads/doorbell.h"

namespace tensor_ops::decode {

// The process that made it, which a forked child is not.
class OwnerProcess {
 public:
  OwnerProcess();
  bool is_current() const;

 private:
  const unsigned forks_;
};

class Team {
 public:
  using Work = void (*)(void* context, std::size_t thread);

  // The caller of run() is thread 0; the others are started here. Throws Error where there are none
  // to be had.
  explicit Team(std::size_t threads);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  std::size_t threads() const { return threads_; }
  // Calls work(context, thread) on every thread and returns when all are done. One job at a time.
  // `work` must not throw.
  void run(Work work, void* context);
  // Called by every thread in a job: returns when all have called it.
  void meet();

 private:
  struct alignas(64) Worker {
    std::atomic<bool> is_asleep{false};
    Doorbell bell;
  };

  void serve(std::size_t thread);
  void wait_for_job(Worker& worker, std::uint32_t last);
  void wake_all();

  const std::size_t threads_;
  const OwnerProcess owner_;
  std::unique_ptr<Worker[]> workers_;
  std::vector<std::thread> started_;
  Work work_ = nullptr;  // null: the threads are to end
  void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> job_{0};
  alignas(64) std::atomic<std::size_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> meetings_{0};
};

}  // namespace tensor_ops::decode
