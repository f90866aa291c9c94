// What can be chosen of the executor, beside the program.
#pragma once

#include "declaration/errors.h"
#include "decode/program/activation_names.h"

namespace tensor_ops::decode {

// Whether tensor cores multiply activations of this type; CUDA cores do in float32. Throws
// ValueError for activations that the executor does not round to.
inline bool are_for_tensor_cores(ActivationType type) {
  if (type == ActivationType::kInt8x2) return true;
  if (type == ActivationType::kFloat32) return false;
  throw ValueError(text("activations is '", activation_name(type),
                        "', and the executor of cuda has 'int8x2', by tensor cores, and 'float32'; "
                        "leave it out, or choose another backend"));
}

}  // namespace tensor_ops::decode
