// Whether the values, weights and sizes of a node fit together.
#pragma once

#include "decode/program/program.h"

namespace tensor_ops::decode {

// Throws ValueError that names the node, the slot, what was given and what is expected. Notes what
// the integers of its inputs must be below, and of its outputs what they are below.
void check_node(Program& program, Node& node);

}  // namespace tensor_ops::decode
