// The kernels of each kind of node.
#pragma once

#include "declaration/shared.h"
#include "decode/executor/share.h"
#include "decode/program/node_kind.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

// The kernels of the instruction-set level in use. Throws Error, which names the kind, where it has
// none or is beyond what a Share can hold.
const NodeKernels& kernels_of(const NodeKind& kind);
// Throws Error where kernels_of() does so for a kind of the program's nodes.
TENSOR_OPS_SHARED void require_kernels(const Program& program);

}  // namespace tensor_ops::decode
