// Running a call on a device.
#pragma once

#include "declaration/shared.h"
#include "launch/problem.h"

namespace tensor_ops {

// Enqueues a call whose memory is the device's, which is current. Nothing may be empty. Rows whose
// elements are not neighbours are gathered into memory of the stream before and scattered after.
// Throws CudaError.
TENSOR_OPS_SHARED void run_on_device(const Problem& problem, const DeviceFacts& device,
                                     cudaStream_t stream);

}  // namespace tensor_ops
