#include "launch/threads.h"

#include <algorithm>
#include <atomic>

#include "launch/resources.h"

namespace tensor_ops {
namespace {

// 0: not set, and not yet found out.
std::atomic<int> threads_set{0};
std::atomic<int> threads_allowed{0};

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

int threads_for(Cost cost, std::size_t elements) {
  // Elements per thread, measured: see README.md, "Threads".
  const std::size_t least = cost == Cost::kTranscendental ? 16384 : 32768;
  const std::size_t useful = elements / least;
  if (useful < 2) return 1;
  const int most = num_threads();
  return useful < static_cast<std::size_t>(most) ? static_cast<int>(useful) : most;
}

}  // namespace tensor_ops
