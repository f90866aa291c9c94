#include <algorithm>
#include <cstdint>

#include "launch/cuda.h"
#include "launch/gather.h"

namespace tensor_ops {
namespace {

constexpr unsigned kThreads = 256;
// Threads go on with further elements, so that more blocks than a device can hold do not pay.
constexpr std::int64_t kMostBlocks = 4096;

// The address of element `index` of an area.
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

template <bool kGathers, class Item, class Index>
__global__ void copy_items(const StridedArea area, Item* packed, Index count) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    auto* item = reinterpret_cast<Item*>(element_of(area, i));
    if (kGathers)
      packed[i] = *item;
    else
      *item = packed[i];
  }
}

template <bool kGathers, class Item, class Index>
void launch_copy(const StridedArea& area, void* packed, cudaStream_t stream) {
  const std::int64_t count = area.count();
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(std::min(kMostBlocks, (count + kThreads - 1) / kThreads)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  CUDA_CHECK(cudaLaunchKernelEx(&config, copy_items<kGathers, Item, Index>, area,
                                static_cast<Item*>(packed), static_cast<Index>(count)));
}

template <bool kGathers, class Item>
void copy_area_of(const StridedArea& area, void* packed, cudaStream_t stream) {
  if (area.count() < std::int64_t{1} << 31)
    launch_copy<kGathers, Item, std::uint32_t>(area, packed, stream);
  else
    launch_copy<kGathers, Item, std::uint64_t>(area, packed, stream);
}

template <bool kGathers>
void copy_area(const StridedArea& area, void* packed, cudaStream_t stream) {
  if (area.item_size == 2)
    copy_area_of<kGathers, std::uint16_t>(area, packed, stream);
  else if (area.item_size == 4)
    copy_area_of<kGathers, std::uint32_t>(area, packed, stream);
  else
    copy_area_of<kGathers, std::uint64_t>(area, packed, stream);
}

}  // namespace

void gather_area(const StridedArea& from, void* to, cudaStream_t stream) {
  copy_area<true>(from, to, stream);
}

void scatter_area(void* from, const StridedArea& to, cudaStream_t stream) {
  copy_area<false>(to, from, stream);
}

}  // namespace tensor_ops
