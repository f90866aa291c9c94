// Every call of the CUDA runtime goes through CUDA_CHECK.
#pragma once

#include <cuda_runtime.h>

#include "declaration/errors.h"

namespace tensor_ops {

struct CudaError : Error {
  using Error::Error;
};
// The device has no memory left.
struct CudaMemoryError : MemoryError {
  using MemoryError::MemoryError;
};

// Throws CudaError or CudaMemoryError for anything but success, and clears an error that does not
// outlast its call.
void check_cuda(cudaError_t code, const char* call);

#define CUDA_CHECK(call) ::tensor_ops::check_cuda((call), #call)

}  // namespace tensor_ops
