#include "arrays/leases.h"

#include <deque>
#include <mutex>
#include <vector>

#include "launch/cuda.h"
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

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

// Those in front that are done, and of too many the oldest, which is waited for.
std::vector<Kept> take_done() {
  constexpr std::size_t kMostKept = 64;
  std::vector<Kept> done;
  const std::lock_guard lock(kept().mutex);
  auto& queue = kept().queue;
  while (!queue.empty() && (queue.size() > kMostKept || queue.front().done.is_done())) {
    if (queue.size() > kMostKept) queue.front().done.synchronize();
    done.push_back(std::move(queue.front()));
    queue.pop_front();
  }
  return done;
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
  if (!is_capturing(stream)) take_done();
}

}  // namespace tensor_ops
