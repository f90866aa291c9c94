// Running a call on a device, whose memory its arrays are or whose host's.
#pragma once

#include "declaration/shared.h"
#include "launch/problem.h"

namespace tensor_ops {

// Enqueues a call whose memory is the device's, which is current. Nothing may be empty. Rows whose
// elements are not neighbours are gathered into memory of the stream before and scattered after.
// Throws CudaError.
TENSOR_OPS_SHARED void run_on_device(const Problem& problem, const DeviceFacts& device,
                                     cudaStream_t stream);

// Runs a call on host memory: one chunk of rows is uploaded while another is computed and a third
// one is downloaded. Returns when the results have been written. No array may be empty. Throws
// CudaError, or MemoryError where the device has no memory even for the smallest chunk.
TENSOR_OPS_SHARED void run_from_host(const Problem& problem, const DeviceFacts& device);

// Bytes of a chunk, all its arrays together. For tests, which set a small one.
TENSOR_OPS_SHARED std::int64_t chunk_bytes();
TENSOR_OPS_SHARED void set_chunk_bytes(std::int64_t bytes);

}  // namespace tensor_ops
