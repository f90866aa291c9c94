// The kernels of each kind of node, and the scratch that they want.
#pragma once

#include <string>
#include <vector>

#include "declaration/shared.h"
#include "decode/executor/share.h"
#include "decode/program/node_kind.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

// The scratch of a node, without that of its products.
using ScratchOf = Scratch (*)(const Program&, const Node&);

struct RegisteredNode {
  std::vector<const NodeKernels*> by_level;
  ScratchOf scratch;  // may be null
};

// Throws Error, which names the kind, where it has no kernels or is beyond what a Share can hold.
const RegisteredNode& registered(const NodeKind& kind);
// Throws Error where a kind of the program's nodes has no kernels or is beyond a Share.
TENSOR_OPS_SHARED void require_kernels(const Program& program);
// The kernels of the instruction-set level in use.
const NodeKernels& kernels_of(const NodeKind& kind);

// Enters the kernels of a kind by level, lowest first.
struct NodeRegistration {
  NodeRegistration(const char* kind, ScratchOf scratch, std::vector<const NodeKernels*> by_level);
};

}  // namespace tensor_ops::decode
