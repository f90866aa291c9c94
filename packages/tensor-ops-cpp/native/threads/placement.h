// Keeps the threads of a job off one another's CPUs.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensor_ops {

// Systems wake a thread where the one that wakes it runs, some even when another CPU is idle: then
// the two take turns, and the job takes longer than one thread alone would.
class Placement {
 public:
  // The calling thread, whose job it is, stays where it is.
  void begin(std::uint32_t job);
  // Moves the calling thread, if it has joined on the CPU of another thread of the job, to one that
  // has none, out of those that the process may use; if there is one.
  void settle(std::uint32_t job);
  // Asks the system to let the calling thread run soon, if not for long, where another thread runs:
  // OpenMP runtimes keep theirs running for milliseconds only to wait for work.
  static void ask_for_short_turns();
  // Whether the calling thread is where the last job's caller was.
  bool is_beside_caller() const;

#if defined(__linux__)
 private:
  static constexpr int kCpus = 1024;

  std::atomic<int> callers_cpu_{-1};
  std::atomic<std::uint32_t> taken_by_[kCpus] = {};
#endif
};

}  // namespace tensor_ops
