// Host memory that the device reads and writes by itself.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>

#include "launch/cuda.h"
#include "launch/device.h"

namespace tensor_ops::decode {

class PinnedMemory {
 public:
  // Allocates zeros. Throws CudaError.
  explicit PinnedMemory(std::size_t bytes) {
    void* data = nullptr;
    CUDA_CHECK(cudaHostAlloc(&data, bytes, cudaHostAllocPortable));
    std::memset(data, 0, bytes);
    data_.reset(data);
  }
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(data_.get()) + offset);
  }

 private:
  struct Free {
    void operator()(void* data) const {
      if (!is_forked_child() && cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
    }
  };
  std::unique_ptr<void, Free> data_;
};

}  // namespace tensor_ops::decode
