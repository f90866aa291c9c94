// The kernels of each kind of node, and the scratch that they want.
#pragma once

#include <string>
#include <vector>

#include "decode/executor/share.h"
#include "decode/program/node_kind.h"

namespace tensor_ops::decode {

// What a node wants beside what products need.
using ScratchOf = Scratch (*)(const Program&, const Node&);

struct RegisteredNode {
  std::vector<const NodeKernels*> by_level;
  ScratchOf scratch;  // may be null
};

// Throws Error where there are none.
const RegisteredNode& registered(const NodeKind& kind);
// Of the instruction-set level in use.
const NodeKernels& kernels_of(const NodeKind& kind);

// Enters the kernels of a kind by level, lowest first.
struct NodeRegistration {
  NodeRegistration(const char* kind, ScratchOf scratch, std::vector<const NodeKernels*> by_level);
};

}  // namespace tensor_ops::decode
