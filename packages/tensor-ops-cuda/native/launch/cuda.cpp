#include "launch/cuda.h"

#include <cstring>

namespace tensor_ops {

void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  const std::string function(call, std::strcspn(call, "("));  // without its arguments
  const std::string message =
      text(function, " failed: ", cudaGetErrorName(code), ", ", cudaGetErrorString(code));
  if (code == cudaErrorMemoryAllocation)
    throw CudaMemoryError(text(message, "; free arrays, or use smaller ones"));
  throw CudaError(message);
}

}  // namespace tensor_ops
