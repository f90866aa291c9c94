#include "launch/cuda.h"

#include "launch/errors.h"

namespace tensor_ops {
namespace {

// "cudaMallocAsync(&data, ...)" without its arguments.
std::string function_of(const char* call) {
  const std::string whole = call;
  return whole.substr(0, whole.find('('));
}

}  // namespace

CudaError::CudaError(cudaError_t code, const char* call)
    : std::runtime_error(text(function_of(call), " failed: ", cudaGetErrorName(code), ", ",
                              cudaGetErrorString(code))),
      code_(code) {}

void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw CudaError(code, call);
}

}  // namespace tensor_ops
