// The names of the kinds of activations.
#pragma once

#include <string>

#include "declaration/errors.h"
#include "decode/program/activation_type.h"

namespace tensor_ops::decode {

inline const char* activation_name(ActivationType type) {
  return kActivationNames[static_cast<std::size_t>(type)];
}

// Throws ValueError, which has all names, where no kind has this one.
inline ActivationType activation_type(const std::string& name) {
  for (std::size_t type = 0; type < kActivationTypes; ++type)
    if (name == kActivationNames[type]) return static_cast<ActivationType>(type);
  throw ValueError(
      text("activations must be 'int8x2', 'int8', 'bfloat16' or 'float32', got '", name, "'"));
}

}  // namespace tensor_ops::decode
