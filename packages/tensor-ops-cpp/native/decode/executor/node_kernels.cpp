#include "decode/executor/node_kernels.h"

#include <algorithm>
#include <cstring>
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

// What a kind has that a Share cannot hold; empty if there is nothing.
std::string beyond(const NodeKind& kind) {
  const auto count = [&](WeightForm form) {
    return std::count_if(kind.weights.begin(), kind.weights.end(),
                         [form](const WeightSlot& slot) { return slot.form == form; });
  };
  const auto more_than = [](std::size_t most, const char* what) {
    return text("more than ", most, " ", what);
  };
  if (kind.inputs.size() > kMostInputs) return more_than(kMostInputs, "inputs");
  if (kind.weights.size() > kMostWeights) return more_than(kMostWeights, "weights");
  if (kind.outputs.size() > 1) return more_than(1, "output");
  if (count(WeightForm::kMatrices) > 1) return more_than(1, "slot of matrices");
  if (count(WeightForm::kLookup) > 1) return more_than(1, "table");
  for (const WeightSlot& slot : kind.weights)
    if (slot.need == Need::kOptional &&
        (slot.form == WeightForm::kMatrices || slot.form == WeightForm::kLookup))
      return text("optional matrices (", slot.name, ")");
  if (count(WeightForm::kStack) > 0) return "matrices that an input chooses";
  if (kind.cache.form == CacheForm::kState) return "a state";
  if (kind.has_cache() && std::strcmp(kind.cache.sizes[1], kind.cache.sizes[2]) != 0)
    return "values of another size than keys";
  return "";
}

}  // namespace

NodeRegistration::NodeRegistration(const char* kind, ScratchOf scratch,
                                   std::vector<const NodeKernels*> by_level) {
  registry().emplace(kind, RegisteredNode{std::move(by_level), scratch});
}

const RegisteredNode& registered(const NodeKind& kind) {
  const auto found = registry().find(kind.name);
  if (found == registry().end())
    throw Error(text("the cpp backend has no node of the kind ", kind.name));
  if (const std::string what = beyond(kind); !what.empty())
    throw Error(text("the cpp backend runs no nodes with ", what, ", which those of the kind ",
                     kind.name, " have"));
  return found->second;
}

void require_kernels(const Program& program) {
  for (const Node& node : program.nodes) registered(*node.kind);
}

const NodeKernels& kernels_of(const NodeKind& kind) {
  return *registered(kind).by_level[isa_choice().index];
}

}  // namespace tensor_ops::decode
