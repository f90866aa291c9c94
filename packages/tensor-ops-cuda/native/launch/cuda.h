// Every call of the CUDA runtime goes through CUDA_CHECK.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>

namespace tensor_ops {

// Becomes MemoryError where the device has no memory left, else RuntimeError.
class CudaError : public std::runtime_error {
 public:
  CudaError(cudaError_t code, const char* call);
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

// Throws CudaError for anything but success, and clears an error that does not outlast its call.
void check_cuda(cudaError_t code, const char* call);

#define CUDA_CHECK(call) ::tensor_ops::check_cuda((call), #call)

}  // namespace tensor_ops
