#include "launch/memory.h"

#include "launch/cuda.h"

namespace tensor_ops {

DeviceMemory::DeviceMemory(std::size_t bytes, cudaStream_t stream) : stream_(stream) {
  CUDA_CHECK(cudaMallocAsync(&data_, bytes, stream));
}

DeviceMemory::~DeviceMemory() {
  // A stream or a context that is gone has taken its memory along.
  if (data_ && cudaFreeAsync(data_, stream_) != cudaSuccess) cudaGetLastError();
}

}  // namespace tensor_ops
