// The device of host arrays, as TENSOR_OPS_CUDA_DEVICE says at the time of the call.
#pragma once

namespace tensor_ops {

// Throws UnavailableError, ValueError or PythonError.
int chosen_host_device();

}  // namespace tensor_ops
