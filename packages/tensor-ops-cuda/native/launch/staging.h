// Calls on host memory: chunks of rows go up, are computed and come down at the same time.
#pragma once

#include "launch/problem.h"

namespace tensor_ops {

// Returns when the results are there. Nothing may be empty. Throws CudaError, or MemoryError where
// the device has no memory even for the smallest chunk.
void run_from_host(const Problem& problem, const DeviceFacts& device);

// Bytes of a chunk, all its arrays together. For tests, which set a small one.
std::int64_t chunk_bytes();
void set_chunk_bytes(std::int64_t bytes);

}  // namespace tensor_ops
