// The kernels of each kind of node, and the scratch that they want.
#pragma once

#include <string>
#include <vector>

#include "declaration/shared.h"
#include "decode/executor/share.h"
#include "decode/program/node_kind.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

// What a node wants beside what products need.
using ScratchOf = Scratch (*)(const Program&, const Node&);

struct RegisteredNode {
  std::vector<const NodeKernels*> by_level;
  ScratchOf scratch;  // may be null
};

// Throws Error that names the kind where there are none, or where it is beyond what a Share holds.
const RegisteredNode& registered(const NodeKind& kind);
// Throws likewise for any kind of a program.
TENSOR_OPS_SHARED void require_kernels(const Program& program);
// Of the instruction-set level in use.
const NodeKernels& kernels_of(const NodeKind& kind);

// Enters the kernels of a kind by level, lowest first.
struct NodeRegistration {
  NodeRegistration(const char* kind, ScratchOf scratch, std::vector<const NodeKernels*> by_level);
};

}  // namespace tensor_ops::decode
