#include "decode/program/activation_names.h"

#include "declaration/errors.h"

namespace tensor_ops::decode {

ActivationType activation_type(const std::string& name) {
  for (std::size_t type = 0; type < kActivationTypes; ++type)
    if (name == kActivationNames[type]) return static_cast<ActivationType>(type);
  throw ValueError(
      text("activations must be 'int8x2', 'int8', 'bfloat16' or 'float32', got '", name, "'"));
}

}  // namespace tensor_ops::decode
