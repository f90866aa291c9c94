#include "decode/program/tensor_type.h"

namespace tensor_ops::decode {

const TensorType* find_tensor_type(const std::string& name) {
  for (const TensorType& type : tensor_types())
    if (name == type.name) return &type;
  return nullptr;
}

std::string tensor_type_names() {
  std::string names;
  for (const TensorType& type : tensor_types())
    names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

}  // namespace tensor_ops::decode
