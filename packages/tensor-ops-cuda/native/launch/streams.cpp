#include "launch/streams.h"

#include <map>
#include <mutex>

#include "launch/cuda.h"

namespace tensor_ops {
namespace {

// The handles 0 and 1 both mean the legacy default stream.
cudaStream_t plain(cudaStream_t stream) { return stream ? stream : cudaStreamLegacy; }

}  // namespace

Event::Event() { CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }

Event::~Event() {
  if (event_ && cudaEventDestroy(event_) != cudaSuccess) cudaGetLastError();
}

void Event::record(cudaStream_t stream) { CUDA_CHECK(cudaEventRecord(event_, stream)); }

void Event::synchronize() const { CUDA_CHECK(cudaEventSynchronize(event_)); }

bool Event::is_done() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state != cudaErrorNotReady) return CUDA_CHECK(state), true;
  cudaGetLastError();
  return false;
}

Stream::Stream() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

Stream::~Stream() {
  if (stream_ && cudaStreamDestroy(stream_) != cudaSuccess) cudaGetLastError();
}

void Stream::wait_for(const Event& event) const {
  CUDA_CHECK(cudaStreamWaitEvent(stream_, event.get(), 0));
}

void order_after(cudaStream_t later, cudaStream_t earlier) {
  if (plain(later) == plain(earlier)) return;
  Event event;
  event.record(earlier);
  CUDA_CHECK(cudaStreamWaitEvent(later, event.get(), 0));
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

cudaStream_t own_stream(int device) {
  static std::mutex mutex;
  static auto* streams = new std::map<int, Stream>;
  const std::lock_guard lock(mutex);
  return streams->try_emplace(device).first->second.get();
}

}  // namespace tensor_ops
