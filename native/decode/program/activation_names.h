// The names of the kinds of activations.
#pragma once

#include <string>

#include "declaration/shared.h"
#include "decode/program/activation_type.h"

namespace tensor_ops::decode {

inline const char* activation_name(ActivationType type) {
  return kActivationNames[static_cast<std::size_t>(type)];
}

// Throws ValueError, which has all names, where no kind has this one.
TENSOR_OPS_SHARED ActivationType activation_type(const std::string& name);

}  // namespace tensor_ops::decode
