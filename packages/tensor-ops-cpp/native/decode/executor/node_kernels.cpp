#include "decode/executor/node_kernels.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "declaration/errors.h"
#include "isa/isa.h"
#include "isa/levels.h"
#include "node_files.h"

#define TENSOR_OPS_DECLARE_NODE_AT(kind, level, name) \
  namespace tensor_ops::level {                       \
  extern const decode::NodeKernels kind##_node;       \
  }
#define TENSOR_OPS_DECLARE_NODE(kind) TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_DECLARE_NODE_AT, kind)
#define TENSOR_OPS_NODE_AT(kind, level, name) &tensor_ops::level::kind##_node,
#define TENSOR_OPS_KERNELS_OF_NODE(kind) \
  {#kind, {TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_NODE_AT, kind)}},

TENSOR_OPS_FOR_EACH_NODE(TENSOR_OPS_DECLARE_NODE)

namespace tensor_ops::decode {
namespace {

// The part of a kind that a Share cannot hold; empty if there is none.
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
  if (kind.outputs.size() > 2) return more_than(2, "outputs");
  if (count(WeightForm::kMatrices) + count(WeightForm::kStack) > 1)
    return more_than(1, "slot of matrices");
  if (count(WeightForm::kLookup) > 1) return more_than(1, "table");
  for (const WeightSlot& slot : kind.weights)
    if (slot.need == Need::kOptional &&
        (slot.form == WeightForm::kMatrices || slot.form == WeightForm::kStack ||
         slot.form == WeightForm::kLookup))
      return text("optional matrices (", slot.name, ")");
  return "";
}

}  // namespace

const NodeKernels& kernels_of(const NodeKind& kind) {
  // By level, lowest first.
  static const std::map<std::string, std::vector<const NodeKernels*>> kernels{
      TENSOR_OPS_FOR_EACH_NODE(TENSOR_OPS_KERNELS_OF_NODE)};
  const auto found = kernels.find(kind.name);
  if (found == kernels.end())
    throw Error(text("the cpp backend has no node of the kind ", kind.name));
  if (const std::string what = beyond(kind); !what.empty())
    throw Error(text("the cpp backend runs no nodes with ", what, ", which those of the kind ",
                     kind.name, " have"));
  return *found->second[isa_choice().index];
}

void require_kernels(const Program& program) {
  for (const Node& node : program.nodes) kernels_of(*node.kind);
}

}  // namespace tensor_ops::decode
