// The end of functions of the C interface: exceptions become statuses and messages.
#pragma once

#include <cstddef>

#include "tensor_ops/abi.h"

namespace tensor_ops {

// The status of the C++ exception in flight, whose text goes into the message.
tensor_ops_status status_of_exception(tensor_ops_error* error) noexcept;

// Runs what may throw.
template <class Work>
tensor_ops_status guarded(tensor_ops_error* error, Work work) noexcept {
  try {
    work();
    return TENSOR_OPS_OK;
  } catch (...) {
    return status_of_exception(error);
  }
}

// Throws ValueError where a caller's struct is smaller than version 1 has it.
void require_size(const char* name, std::size_t given, std::size_t expected);

}  // namespace tensor_ops
