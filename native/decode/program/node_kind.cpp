#include "decode/program/node_kind.h"

namespace tensor_ops::decode {

const NodeKind* find_node_kind(const std::string& name) {
  for (const NodeKind& kind : node_kinds())
    if (name == kind.name) return &kind;
  return nullptr;
}

std::string node_kind_names() {
  std::string names;
  for (const NodeKind& kind : node_kinds())
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

}  // namespace tensor_ops::decode
