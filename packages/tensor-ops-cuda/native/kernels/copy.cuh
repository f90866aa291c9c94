// Copies between elements that lie anywhere and the same elements one after another.
#pragma once

#include <cuda_runtime.h>

#include "launch/gather.h"

namespace tensor_ops {

// Where element `index` of an area lies.
template <class Index>
__device__ __forceinline__ char* element_of(const StridedArea& area, Index index) {
  char* data = area.data;
  for (int d = area.axes - 1; d > 0; --d) {
    const auto extent = static_cast<Index>(area.extent[d]);
    const Index quotient = index / extent;
    data += static_cast<std::int64_t>(index - quotient * extent) * area.stride[d];
    index = quotient;
  }
  return data + static_cast<std::int64_t>(index) * area.stride[0];
}

template <class Item, class Index>
__global__ void gather_items(const StridedArea from, Item* to, Index count) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    to[i] = *reinterpret_cast<const Item*>(element_of(from, i));
}

template <class Item, class Index>
__global__ void scatter_items(const StridedArea to, Item* from, Index count) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    *reinterpret_cast<Item*>(element_of(to, i)) = from[i];
}

}  // namespace tensor_ops
