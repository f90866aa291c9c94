#include "launch/memory.h"

#include "launch/cuda.h"

namespace tensor_ops {

DeviceMemory::DeviceMemory(std::size_t bytes, cudaStream_t stream) : stream_(stream) {
  CUDA_CHECK(cudaMallocAsync(&data_, bytes, stream));
}

DeviceMemory::~DeviceMemory() {
  if (!data_ || cudaFreeAsync(data_, stream_) == cudaSuccess) return;
  // The caller's stream is gone, and so is all that it was asked to do; or the whole context is.
  cudaGetLastError();
  if (cudaDeviceSynchronize() != cudaSuccess || cudaFree(data_) != cudaSuccess) cudaGetLastError();
}

}  // namespace tensor_ops
