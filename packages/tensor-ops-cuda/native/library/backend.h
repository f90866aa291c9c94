// The exported function of libtensor_ops_cuda, and what the Python module uses of its table.
#pragma once

#include <string>

#include "declaration/shared.h"
#include "tensor_ops/abi.h"

namespace tensor_ops {

// What was compiled, as the table says it.
TENSOR_OPS_SHARED std::string configuration();

}  // namespace tensor_ops

extern "C" TENSOR_OPS_SHARED tensor_ops_status tensor_ops_cuda_backend(
    std::uint32_t abi_version, const tensor_ops_backend** backend, tensor_ops_error* error);
