// Copies between elements that lie anywhere on a device and the same elements one after another.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "launch/problem.h"

namespace tensor_ops {

// Elements by axes, the last varying fastest.
struct StridedArea {
  char* data;
  int axes;
  std::int64_t extent[kMaxDims + 1];
  std::int64_t stride[kMaxDims + 1];  // bytes
};

// Appends an axis, as part of the last one where they lie one after another.
void add_axis(StridedArea& area, std::int64_t extent, std::int64_t stride);

std::int64_t count_of(const StridedArea& area);

// Enqueue the copy. Throw CudaError.
void gather_area(const StridedArea& from, void* to, std::int64_t item_size, cudaStream_t stream);
void scatter_area(const void* from, const StridedArea& to, std::int64_t item_size,
                  cudaStream_t stream);

}  // namespace tensor_ops
