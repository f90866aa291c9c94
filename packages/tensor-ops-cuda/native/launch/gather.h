// Copies between a strided area on a device and the same elements one after another.
#pragma once

#include <cuda_runtime.h>

#include "launch/area.h"

namespace tensor_ops {

// Enqueue the copy. Throw CudaError.
void gather_area(const StridedArea& from, void* to, cudaStream_t stream);
void scatter_area(void* from, const StridedArea& to, cudaStream_t stream);

}  // namespace tensor_ops
