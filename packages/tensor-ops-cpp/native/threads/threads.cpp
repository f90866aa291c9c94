#include "threads/threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "threads/pool.h"
#include "threads/resources.h"

namespace tensor_ops {
namespace {

// 0: not set, and not yet found out.
std::atomic<int> threads_set{0};
std::atomic<int> threads_allowed{0};

// Nanoseconds of work for each thread from which on it pays to share it with a thread that is
// awake, and to wake one up. Measured: see README.md, "Threads".
constexpr double kWorthJoining = 2500, kWorthWaking = 40000;

// Work of calls that followed one another without a pause, and for which no thread was woken. What
// would not pay for one call may for many: who has done alone what was worth waking for is likely
// to have more to do.
std::atomic<double> streak{0};
std::atomic<std::int64_t> streak_ends{0};

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Callers that get into one another's way here only misjudge what pays.
double done_alone_before(double nanoseconds) {
  constexpr std::int64_t kPause = 30000;
  const std::int64_t begin = now();
  const double before = begin < streak_ends.load(std::memory_order_relaxed)
                            ? streak.load(std::memory_order_relaxed)
                            : 0;
  streak.store(before + nanoseconds, std::memory_order_relaxed);
  streak_ends.store(begin + static_cast<std::int64_t>(1.5 * nanoseconds) + kPause,
                    std::memory_order_relaxed);
  return before;
}

}  // namespace

int num_threads() {
  if (const int set = threads_set.load(std::memory_order_relaxed)) return set;
  int allowed = threads_allowed.load(std::memory_order_relaxed);
  if (!allowed) {
    allowed = allowed_threads();
    threads_allowed.store(allowed, std::memory_order_relaxed);
  }
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
  const double most = num_threads();
  const double joined = std::min(most, nanoseconds / kWorthJoining);
  const double threads = std::min(joined, 1.0 + helpers_awake());
  if (threads == joined) return static_cast<int>(threads);
  const double woken = (nanoseconds + done_alone_before(nanoseconds)) / kWorthWaking;
  return static_cast<int>(std::max(threads, std::min(joined, woken)));
}

}  // namespace tensor_ops
