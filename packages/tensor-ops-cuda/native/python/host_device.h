// The device of host arrays, as TENSOR_OPS_CUDA_DEVICE says at the time of the call.
#pragma once

namespace tensor_ops {

// Throws UnavailableError, ValueError or PythonError.
int chosen_host_device();

// Whether the variable is set, and not empty. Throws PythonError.
bool is_host_device_chosen();

}  // namespace tensor_ops
