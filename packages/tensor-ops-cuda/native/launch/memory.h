// Device memory in the order of a stream: it is there for what the stream does after the
// allocation, and goes back after what it did before the release.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "declaration/shared.h"
#include "launch/area.h"

namespace tensor_ops {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  // On the current device. Throws CudaError.
  TENSOR_OPS_SHARED DeviceMemory(std::size_t bytes, cudaStream_t stream);
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  TENSOR_OPS_SHARED ~DeviceMemory();

  void* data() const { return data_; }
  cudaStream_t stream() const { return stream_; }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// Copies between host memory and contiguous memory of the current device, on a stream. The host
// waits: its memory may be used again. What is uploaded goes through pinned memory if possible.
// Throws CudaError.
TENSOR_OPS_SHARED void upload(const StridedArea& from, void* to, cudaStream_t stream);
TENSOR_OPS_SHARED void download(const void* from, void* to, std::size_t bytes, cudaStream_t stream);

}  // namespace tensor_ops
