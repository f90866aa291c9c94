// Launching a kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "launch/cuda.h"

namespace tensor_ops {

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;         // blocks of a cluster, along x
  bool is_cooperative = false;  // all blocks run at once, or the launch fails
};

template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, const Grid& grid, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (grid.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = grid.cluster;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  if (grid.is_cooperative) {
    cudaLaunchAttribute& cooperative = attributes[config.numAttrs++];
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
  }
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace tensor_ops
