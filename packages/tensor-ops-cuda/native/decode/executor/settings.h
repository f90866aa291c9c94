// What can be chosen of the executor, beside the program.
#pragma once

#include "declaration/errors.h"
#include "decode/program/activation_names.h"

namespace tensor_ops::decode {

// Throws ValueError for activations that the executor does not round to.
inline void require_activations(ActivationType type) {
  if (type == ActivationType::kInt8x2) return;
  throw ValueError(text("activations is '", activation_name(type),
                        "', and the executor of cuda has only 'int8x2'; leave it out, or choose "
                        "another backend"));
}

}  // namespace tensor_ops::decode
