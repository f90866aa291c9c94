// A team of threads that lives as long as an executable. Where they wait for one another, within a
// job or for the next one, they spin for a moment, then sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "threads/semaphore.h"

namespace tensor_ops::decode {

// Tells the process that made this object from its forked children.
class OwnerProcess {
 public:
  OwnerProcess();
  bool is_current() const;

 private:
  const unsigned forks_;
};

class Team {
 public:
  using Clock = std::chrono::steady_clock;

  // The caller of run() is thread 0; the others are started here. Throws Error where the system
  // does not give as many threads.
  explicit Team(std::size_t threads);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  std::size_t size() const { return size_; }
  // Calls work(worker) on the first `workers` threads and returns when all are done. One job at a
  // time. `work` must not throw.
  template <class Work>
  void run(std::size_t workers, Work work) {
    run_job([](void* of, std::size_t worker) { (*static_cast<Work*>(of))(worker); }, &work,
            workers);
  }
  // Called by every worker of a job: returns when all have called it.
  void meet(std::size_t worker);
  // Called by a worker of a job that has waited for something else than the others: for how long it
  // had given its processor away.
  void note_pause(std::size_t worker, Clock::duration time);
  // For how long each worker of the last job could have run in it but had no processor. Valid until
  // the next job.
  const std::vector<Clock::duration>& without_processor();

 private:
  struct alignas(64) Thread {
    std::atomic<std::uint32_t> jobs{0};
    std::atomic<bool> is_asleep{false};
    Semaphore wakeups;
    Clock::time_point woken_at{};
    Clock::duration slept{}, without_processor{};  // in this job
  };

  using Job = void (*)(void* context, std::size_t worker);

  void run_job(Job job, void* context, std::size_t workers);
  void serve(std::size_t number);
  void take_part(std::size_t number);
  // Whether all workers have come; the last one wakes the others.
  bool arrive();
  void call(std::size_t workers);
  void wake(Thread& thread);
  template <class Done>
  void wait(Thread& thread, Done is_done);

  const std::size_t size_;
  const OwnerProcess owner_;
  std::unique_ptr<Thread[]> threads_;
  std::vector<std::thread> started_;
  Job job_ = nullptr;  // null: the threads are to end
  void* context_ = nullptr;
  std::size_t workers_ = 0;
  std::vector<Clock::duration> without_processor_;
  Clock::time_point job_began_{};
  alignas(64) std::atomic<std::size_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> meetings_{0};
};

}  // namespace tensor_ops::decode
