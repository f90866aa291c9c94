// cudaLaunchKernelEx and other functions that take kernels, as in CUDA's own headers. Included by
// cuda_runtime.h after its types.
#pragma once

namespace emulation {

// Appends work to a stream's queue; defined in stream_queues.cpp.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

// Whether the device can run the grid; defined in launches.cpp, as what follows.
cudaError_t check_launch(const Grid& grid, const void* kernel);
// After a failure everything fails.
void note_outcome(const Outcome& outcome);

inline Grid grid_of(const cudaLaunchConfig_t& config) {
  Grid grid{config.gridDim, config.blockDim};
  grid.shared_bytes = config.dynamicSmemBytes;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension)
      grid.cluster = attribute.val.clusterDim.x;
    if (attribute.id == cudaLaunchAttributeCooperative)
      grid.is_cooperative = attribute.val.cooperative != 0;
  }
  return grid;
}

}  // namespace emulation

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const emulation::Grid grid = emulation::grid_of(*config);
  if (const cudaError_t error =
          emulation::check_launch(grid, reinterpret_cast<const void*>(kernel)))
    return error;
  std::tuple<std::remove_cv_t<Parameters>...> given(std::forward<Arguments>(arguments)...);
  return emulation::enqueue(config->stream, [grid, kernel, given = std::move(given)] {
    emulation::note_outcome(emulation::run_grid(grid, [&] { std::apply(kernel, given); }));
  });
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int threads,
                                                          std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), threads, shared_bytes);
}
