#include "decode/program/tensor_type.h"

namespace tensor_ops::decode {
namespace {

constexpr TensorType kTypes[] = {
    {"bf16", 1, 2},     {"f16", 1, 2},      {"f32", 1, 4},    {"q4_0", 32, 18},
    {"q4_1", 32, 20},   {"q4_K", 256, 144}, {"q5_0", 32, 22}, {"q5_1", 32, 24},
    {"q5_K", 256, 176}, {"q6_K", 256, 210}, {"q8_0", 32, 34},
};

}  // namespace

const TensorType* find_tensor_type(const std::string& name) {
  for (const TensorType& type : kTypes)
    if (name == type.name) return &type;
  return nullptr;
}

std::string tensor_type_names() {
  std::string names;
  for (const TensorType& type : kTypes)
    names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

}  // namespace tensor_ops::decode
