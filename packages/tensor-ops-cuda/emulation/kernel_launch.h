// cudaLaunchKernelEx, as in CUDA's own headers. Included by cuda_runtime.h after its types.
#pragma once

namespace emulation {

// Appends work to a stream's queue; defined in stream_queues.cpp.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

inline unsigned cluster_size_of(const cudaLaunchConfig_t& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i)
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension)
      return config.attrs[i].val.clusterDim.x;
  return 1;
}

inline bool can_run(const Grid& grid) {
  const unsigned threads = grid.threads.x * grid.threads.y * grid.threads.z;
  return threads >= 1 && threads <= 1024 && grid.blocks.x >= 1 && grid.blocks.y >= 1 &&
         grid.blocks.z >= 1 && grid.blocks.x <= 0x7fffffffu && grid.blocks.y <= 65535 &&
         grid.blocks.z <= 65535 && grid.cluster >= 1 && grid.cluster <= 8 &&
         grid.blocks.x % grid.cluster == 0 && grid.shared_bytes <= 48 * 1024;
}

}  // namespace emulation

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const emulation::Grid grid{config->gridDim, config->blockDim, emulation::cluster_size_of(*config),
                             config->dynamicSmemBytes};
  if (!emulation::can_run(grid)) return cudaErrorInvalidConfiguration;
  std::tuple<std::remove_cv_t<Parameters>...> given(std::forward<Arguments>(arguments)...);
  return emulation::enqueue(config->stream, [grid, kernel, given = std::move(given)] {
    emulation::run_grid(grid, [&] { std::apply(kernel, given); });
  });
}
