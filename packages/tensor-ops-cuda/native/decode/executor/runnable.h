// Limits of a device, and whether it can run a program.
#pragma once

#include <cstddef>

#include "declaration/shared.h"
#include "decode/program/activation_type.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

// The slots of a warp's ring: 4, or 3 where shared memory is small.
int slots_for(int device);

// The blocks that a device can run at once, at most.
TENSOR_OPS_SHARED std::size_t most_blocks(int device);

// Whether tensor cores multiply activations of this type; CUDA cores do in float32. Throws
// ValueError for activations that the executor does not round to.
TENSOR_OPS_SHARED bool are_for_tensor_cores(ActivationType type);

// Throws Error, whose text is the reason, where a program cannot run on this device.
TENSOR_OPS_SHARED void require_runnable(const Program& program, int device);

}  // namespace tensor_ops::decode
