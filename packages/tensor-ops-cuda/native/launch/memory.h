// Device memory in the order of a stream: it is there for what the stream does after the
// allocation, and goes back after what it did before the release.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "declaration/shared.h"
#include "launch/area.h"

namespace tensor_ops {

struct FreeInOrder {
  cudaStream_t stream = nullptr;
  TENSOR_OPS_SHARED void operator()(void* data) const;
};
using DeviceMemory = std::unique_ptr<void, FreeInOrder>;

// On the current device. Throws CudaError.
TENSOR_OPS_SHARED DeviceMemory new_device_memory(std::size_t bytes, cudaStream_t stream);

// Copies between host memory and contiguous memory of the current device, on a stream. The host
// waits: its memory may be used again. What is uploaded goes through pinned memory if possible.
// Throws CudaError.
TENSOR_OPS_SHARED void upload(const StridedArea& from, void* to, cudaStream_t stream);
TENSOR_OPS_SHARED void download(const void* from, void* to, std::size_t bytes, cudaStream_t stream);

}  // namespace tensor_ops
