#include "arrays/leases.h"

#include <deque>
#include <mutex>
#include <vector>

#include "launch/streams.h"

namespace tensor_ops {
namespace {

struct Kept {
  Event done;
  Lease lease;
};

struct KeptLeases {
  std::mutex mutex;
  std::deque<Kept> queue;
};

KeptLeases& kept() {
  static auto* leases = new KeptLeases;
  return *leases;
}

struct Taken {
  std::vector<Kept> kept;
  bool are_done = true;
};

// Those in front that are done, and of too many the oldest.
Taken take() {
  constexpr std::size_t kMostKept = 64;
  Taken taken;
  const std::lock_guard lock(kept().mutex);
  auto& queue = kept().queue;
  while (!queue.empty()) {
    const bool is_done = queue.front().done.is_done();
    if (!is_done && queue.size() <= kMostKept) break;
    taken.kept.push_back(std::move(queue.front()));
    taken.are_done = taken.are_done && is_done;
    queue.pop_front();
  }
  return taken;
}

// Python is not held up: a stream may have to call it before it goes on.
void wait_for(const Taken& taken) {
  if (taken.are_done) return;
  const ReleasedGil released;
  for (const Kept& each : taken.kept) each.done.synchronize();
}

}  // namespace

void keep_lease(Lease lease, cudaStream_t stream) {
  Kept added{Event(), std::move(lease)};
  added.done.record(stream);
  {
    const std::lock_guard lock(kept().mutex);
    kept().queue.push_back(std::move(added));
  }
  // A capture may neither ask nor wait. What is done is given back without the lock.
  if (!is_capturing(stream)) wait_for(take());
}

}  // namespace tensor_ops
