// Device memory in the order of a stream: it is there for what the stream does after the
// allocation, and goes back after what it did before the release.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace tensor_ops {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  // On the current device. Throws CudaError.
  DeviceMemory(std::size_t bytes, cudaStream_t stream);
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~DeviceMemory();

  void* data() const { return data_; }
  cudaStream_t stream() const { return stream_; }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tensor_ops
