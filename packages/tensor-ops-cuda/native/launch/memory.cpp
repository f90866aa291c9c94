#include "launch/memory.h"

#include "launch/area.h"
#include "launch/cuda.h"
#include "launch/pinned_pool.h"

namespace tensor_ops {

DeviceMemory new_device_memory(std::size_t bytes, cudaStream_t stream) {
  void* data = nullptr;
  CUDA_CHECK(cudaMallocAsync(&data, bytes, stream));
  return {data, {stream}};
}

void FreeInOrder::operator()(void* data) const {
  if (cudaFreeAsync(data, stream) == cudaSuccess) return;
  // The caller's stream is gone, and so is all that it was asked to do; or the whole context is.
  cudaGetLastError();
  if (cudaDeviceSynchronize() != cudaSuccess || cudaFree(data) != cudaSuccess) cudaGetLastError();
}

void upload(const StridedArea& from, void* to, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(from.bytes());
  const HostBuffer packed = new_host_buffer(bytes);
  pack(from, packed.get());
  CUDA_CHECK(cudaMemcpyAsync(to, packed.get(), bytes, cudaMemcpyHostToDevice, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

void download(const void* from, void* to, std::size_t bytes, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

}  // namespace tensor_ops
