#include <algorithm>

#include "kernels/copy.cuh"
#include "launch/cuda.h"
#include "launch/gather.h"

namespace tensor_ops {
namespace {

constexpr unsigned kThreads = 256;
// Threads go on with further elements, so that more blocks than a device can hold do not pay.
constexpr std::int64_t kMostBlocks = 4096;

template <class Item, class Index>
void launch_copy(const StridedArea& area, void* packed, bool gathers, cudaStream_t stream) {
  const std::int64_t count = count_of(area);
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(std::min(kMostBlocks, (count + kThreads - 1) / kThreads)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  auto* kernel = gathers ? &gather_items<Item, Index> : &scatter_items<Item, Index>;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, area, static_cast<Item*>(packed),
                                static_cast<Index>(count)));
}

template <class Item>
void copy_items(const StridedArea& area, void* packed, bool gathers, cudaStream_t stream) {
  constexpr std::int64_t kNarrow = std::int64_t{1} << 31;
  if (count_of(area) < kNarrow)
    launch_copy<Item, std::uint32_t>(area, packed, gathers, stream);
  else
    launch_copy<Item, std::uint64_t>(area, packed, gathers, stream);
}

void copy(const StridedArea& area, void* packed, std::int64_t item_size, bool gathers,
          cudaStream_t stream) {
  if (item_size == 2)
    copy_items<std::uint16_t>(area, packed, gathers, stream);
  else if (item_size == 4)
    copy_items<std::uint32_t>(area, packed, gathers, stream);
  else
    copy_items<std::uint64_t>(area, packed, gathers, stream);
}

}  // namespace

void add_axis(StridedArea& area, std::int64_t extent, std::int64_t stride) {
  if (extent == 1 && area.axes > 0) return;
  const int last = area.axes - 1;
  if (last >= 0 && area.extent[last] == 1) {
    area.extent[last] = extent;
    area.stride[last] = stride;
  } else if (last >= 0 && area.stride[last] == extent * stride) {
    area.extent[last] *= extent;
    area.stride[last] = stride;
  } else {
    area.extent[area.axes] = extent;
    area.stride[area.axes++] = stride;
  }
}

std::int64_t count_of(const StridedArea& area) {
  std::int64_t count = 1;
  for (int d = 0; d < area.axes; ++d) count *= area.extent[d];
  return count;
}

void gather_area(const StridedArea& from, void* to, std::int64_t item_size, cudaStream_t stream) {
  copy(from, to, item_size, true, stream);
}

void scatter_area(const void* from, const StridedArea& to, std::int64_t item_size,
                  cudaStream_t stream) {
  copy(to, const_cast<void*>(from), item_size, false, stream);
}

}  // namespace tensor_ops
