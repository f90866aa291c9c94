#include "threads/threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "threads/pool.h"
#include "threads/pytorch_threads.h"

namespace tensor_ops {
namespace {

std::atomic<int> threads_set{0};  // 0: not set

// The nanoseconds of work for each thread from which it pays to share a call with a thread that is
// awake, and to wake one up. Measured: see the README.md of the package, "Threads".
constexpr double kWorthJoining = 2500, kWorthWaking = 40000;

// The nanoseconds of work of the calls in a row so far, without a pause between them, for which no
// thread was woken. A loop of calls may be worth waking threads where none of its calls is.
std::atomic<double> work_in_row{0};
std::atomic<std::int64_t> row_ends{0};

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Adds the work of a call to its row and returns the work before it. Two threads that race here
// only misjudge what pays.
double add_to_row(double nanoseconds) {
  constexpr std::int64_t kPause = 30000;
  const std::int64_t begin = now();
  const double before = begin < row_ends.load(std::memory_order_relaxed)
                            ? work_in_row.load(std::memory_order_relaxed)
                            : 0;
  work_in_row.store(before + nanoseconds, std::memory_order_relaxed);
  row_ends.store(begin + static_cast<std::int64_t>(1.5 * nanoseconds) + kPause,
                 std::memory_order_relaxed);
  return before;
}

}  // namespace

int num_threads() {
  if (const int set = threads_set.load(std::memory_order_relaxed)) return set;
  static const int allowed = allowed_threads();
  return allowed;
}

void set_num_threads(int threads) {
  threads_set.store(sensible_threads(threads), std::memory_order_relaxed);
}

int sensible_threads(int wanted) {
  constexpr int kModest = 64;
  return wanted <= kModest ? wanted : std::min(wanted, std::max(kModest, affinity_cpus()));
}

int threads_for(double nanoseconds) {
  if (nanoseconds < 2 * kWorthJoining) return 1;
  const int of_pytorch = pytorch_num_threads();
  const double most = of_pytorch ? std::min(num_threads(), of_pytorch) : num_threads();
  const double joined = std::min(most, nanoseconds / kWorthJoining);
  if (of_pytorch && pytorch_threads_spin()) return static_cast<int>(joined);
  const double threads = std::min(joined, 1.0 + helpers_awake());
  if (threads == joined) return static_cast<int>(threads);
  const double woken = (nanoseconds + add_to_row(nanoseconds)) / kWorthWaking;
  return static_cast<int>(std::max(threads, std::min(joined, woken)));
}

}  // namespace tensor_ops
