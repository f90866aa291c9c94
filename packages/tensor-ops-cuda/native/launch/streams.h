// Streams and events, and the order between streams.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "declaration/shared.h"

namespace tensor_ops {

// Belongs to the device that was current when it was made.
class Event {
 public:
  TENSOR_OPS_SHARED Event();  // throws CudaError
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  TENSOR_OPS_SHARED ~Event();

  TENSOR_OPS_SHARED void record(cudaStream_t stream);
  // Blocks the host.
  TENSOR_OPS_SHARED void synchronize() const;
  TENSOR_OPS_SHARED bool is_done() const;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// One that does not wait for the legacy default stream.
class Stream {
 public:
  Stream();  // throws CudaError
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  ~Stream();

  void wait_for(const Event& event) const;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Makes what `later` is asked to do from now on wait for what `earlier` was asked to do. Nothing
// where they are the same stream.
TENSOR_OPS_SHARED void order_after(cudaStream_t later, cudaStream_t earlier);

// The stream records what it is asked to do in a graph. Throws CudaError.
TENSOR_OPS_SHARED bool is_capturing(cudaStream_t stream);

// A stream of the current device for callers that name none; the same for all, never destroyed.
TENSOR_OPS_SHARED cudaStream_t own_stream(int device);

}  // namespace tensor_ops
