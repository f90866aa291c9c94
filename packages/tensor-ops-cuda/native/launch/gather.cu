#include <algorithm>
#include <cstdint>

#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "launch/area.h"

namespace tensor_ops {
namespace {

constexpr unsigned kThreads = 256;
// Threads go on with further elements, so that more blocks than a device can hold do not pay.
constexpr std::int64_t kMostBlocks = 4096;

// The address of element `index` of an area.
template <class Index>
DEVICE char* element_of(const StridedArea& area, Index index) {
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

template <bool kGathers>
void copy_area(const StridedArea& area, void* packed, cudaStream_t stream) {
  const std::int64_t count = area.count();
  const std::int64_t blocks = std::min(kMostBlocks, (count + kThreads - 1) / kThreads);
  const Grid grid{static_cast<unsigned>(blocks), kThreads};
  const auto copy = [&](auto item) {
    using Item = decltype(item);
    auto* items = static_cast<Item*>(packed);
    if (count < std::int64_t{1} << 31)
      launch(stream, grid, copy_items<kGathers, Item, std::uint32_t>, area, items, count);
    else
      launch(stream, grid, copy_items<kGathers, Item, std::uint64_t>, area, items, count);
  };
  if (area.item_size == 2)
    copy(std::uint16_t{});
  else if (area.item_size == 4)
    copy(std::uint32_t{});
  else
    copy(std::uint64_t{});
}

}  // namespace

void gather_area(const StridedArea& from, void* to, cudaStream_t stream) {
  copy_area<true>(from, to, stream);
}

void scatter_area(void* from, const StridedArea& to, cudaStream_t stream) {
  copy_area<false>(to, from, stream);
}

}  // namespace tensor_ops
