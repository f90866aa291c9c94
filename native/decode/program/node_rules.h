// Whether the values, weights and sizes of a node fit together.
#pragma once

#include "decode/program/program.h"

namespace tensor_ops::decode {

// Throws ValueError, which names the node, the slot, what was given and what is expected. Sets the
// bounds that the integers of the node's inputs must be below, and that those of its outputs are
// below.
void check_node(Program& program, Node& node);

}  // namespace tensor_ops::decode
