#include "launch/cuda.h"

namespace tensor_ops {
namespace {

// "cudaMallocAsync(&data, ...)" without its arguments.
std::string function_of(const char* call) {
  const std::string whole = call;
  return whole.substr(0, whole.find('('));
}

}  // namespace

void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  const std::string message =
      text(function_of(call), " failed: ", cudaGetErrorName(code), ", ", cudaGetErrorString(code));
  if (code == cudaErrorMemoryAllocation)
    throw CudaMemoryError(text(message, "; free arrays, or use smaller ones"));
  throw CudaError(message);
}

}  // namespace tensor_ops
