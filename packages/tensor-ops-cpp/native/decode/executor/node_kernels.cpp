#include "decode/executor/node_kernels.h"

#include <map>
#include <utility>

#include "declaration/errors.h"
#include "isa/isa.h"

namespace tensor_ops::decode {
namespace {

// A static variable of a function, since registrations of other files may run first.
std::map<std::string, RegisteredNode>& registry() {
  static std::map<std::string, RegisteredNode> nodes;
  return nodes;
}

}  // namespace

NodeRegistration::NodeRegistration(const char* kind, ScratchOf scratch,
                                   std::vector<const NodeKernels*> by_level) {
  registry().emplace(kind, RegisteredNode{std::move(by_level), scratch});
}

const RegisteredNode& registered(const NodeKind& kind) {
  const auto found = registry().find(kind.name);
  if (found == registry().end())
    throw Error(text("compile_program: the cpp backend has no node of the kind ", kind.name));
  if (kind.inputs.size() > kMostInputs || kind.weights.size() > kMostWeights)
    throw Error(text("compile_program: a Share has room for ", kMostInputs, " inputs and ",
                     kMostWeights, " weights, and ", kind.name, " has more"));
  return found->second;
}

const NodeKernels& kernels_of(const NodeKind& kind) {
  return *registered(kind).by_level[isa_choice().index];
}

}  // namespace tensor_ops::decode
