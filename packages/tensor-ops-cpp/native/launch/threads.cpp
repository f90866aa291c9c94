#include "launch/threads.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "launch/resources.h"

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(TENSOR_OPS_HAS_OMP_PAUSE)
#include <pthread.h>
#endif

namespace tensor_ops {
namespace {

// libgomp ends the process when it cannot start a thread; nobody needs more than this.
int most_threads() { return std::max(64, affinity_cpus()); }

// 0: not set, and not yet found out.
std::atomic<int> threads_set{0};
std::atomic<int> threads_allowed{0};

#if defined(_OPENMP)

// A child of fork() inherits the record of its parent's worker threads but not the threads, and
// would wait for them for ever. Ending the forking thread's pool before the fork leaves the child
// with nothing to wait for; either process makes a new pool when it needs one. The pools of the
// parent's other threads belong to threads that the child does not have.
void prepare_for_fork() {
#if defined(TENSOR_OPS_HAS_OMP_PAUSE)
  static std::once_flag registered;
  std::call_once(registered, [] {
    pthread_atfork([] { omp_pause_resource_all(omp_pause_hard); }, nullptr, nullptr);
  });
#endif
}

#endif

}  // namespace

bool has_openmp() {
#if defined(_OPENMP)
  return true;
#else
  return false;
#endif
}

int num_threads() {
  if (const int set = threads_set.load(std::memory_order_relaxed)) return set;
  int allowed = threads_allowed.load(std::memory_order_relaxed);
  if (!allowed) {
    allowed = has_openmp() ? allowed_threads() : 1;
    threads_allowed.store(allowed, std::memory_order_relaxed);
  }
  return allowed;
}

void set_num_threads(int threads) {
  threads_set.store(std::min(threads, most_threads()), std::memory_order_relaxed);
}

int threads_for(Cost cost, std::size_t elements) {
  // Least elements per thread. Two awake threads break even with one at 8K (silu, softmax) and 32K
  // elements (rms_norm, rope) in all, float32 on an AVX-512 machine; the margin is for waking them.
  const std::size_t least = cost == Cost::kTranscendental ? 16384 : 32768;
  if (elements < 2 * least) return 1;
  const std::size_t useful = elements / least;
  const int most = num_threads();
  return useful < static_cast<std::size_t>(most) ? static_cast<int>(useful) : most;
}

void run_pieces(int pieces, Work work, const void* context) {
#if defined(_OPENMP)
  if (pieces > 1) {
    prepare_for_fork();
    const int team = std::min(pieces, most_threads());
#pragma omp parallel num_threads(team)
    for (int piece = omp_get_thread_num(); piece < pieces; piece += omp_get_num_threads())
      work(context, piece);
    return;
  }
#endif
  for (int piece = 0; piece < pieces; ++piece) work(context, piece);
}

}  // namespace tensor_ops
