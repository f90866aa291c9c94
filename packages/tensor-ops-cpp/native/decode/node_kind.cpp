#include "decode/node_kind.h"

#include <map>
#include <utility>

#include "declaration/errors.h"
#include "isa/isa.h"

namespace tensor_ops::decode {
namespace {

struct Registered {
  NodeKind kind;
  std::vector<const NodeKernels*> by_level;
};

// A static variable of a function, since registrations of other files may run first.
std::map<std::string, Registered>& registry() {
  static std::map<std::string, Registered> kinds;
  return kinds;
}

}  // namespace

NodeRegistration::NodeRegistration(NodeKind kind, std::vector<const NodeKernels*> by_level) {
  const std::string name = kind.name;
  if (kind.inputs.size() > kMostInputs || kind.weights.size() > kMostWeights)
    throw Error(text("node kind ", name, ": a Share has room for ", kMostInputs, " inputs and ",
                     kMostWeights, " weights"));
  registry().emplace(name, Registered{std::move(kind), std::move(by_level)});
}

const NodeKind* find_node_kind(const std::string& name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : &found->second.kind;
}

std::string node_kind_names() {
  std::string names;
  for (const auto& entry : registry()) names += (names.empty() ? "" : ", ") + entry.first;
  return names;
}

const NodeKernels& kernels_of(const NodeKind& kind) {
  return *registry().at(kind.name).by_level[isa_choice().index];
}

}  // namespace tensor_ops::decode
