// Launching the kernel that runs whole decode steps.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "decode/kernels/plan.h"

namespace tensor_ops::decode {

struct StepGrid {
  int blocks;  // at most one on each multiprocessor
  // Steps of weights that a warp has in shared memory: 3, or 4 where there is room.
  int slots;
  bool uses_tensor_cores;  // for products, else CUDA cores in float32

  // The most tokens of a launch.
  std::size_t most_tokens() const {
    return static_cast<std::size_t>(uses_tensor_cores ? kMostTokens : kMostTokens / 2);
  }
};

// The shared memory of a block, by the slots of its rings.
std::size_t shared_bytes(int slots);

// The bytes of the activations of a panel in global memory.
std::size_t prepared_bytes();

// Enqueues the steps. Throws CudaError.
void launch_steps(const Steps& steps, const StepGrid& grid, cudaStream_t stream);

}  // namespace tensor_ops::decode
