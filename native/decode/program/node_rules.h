// Whether the values, weights and sizes of a node fit together.
#pragma once

#include "decode/program/program.h"

namespace tensor_ops::decode {

// Throws ValueError that names the node, the slot, what was given and what is expected.
void check_node(const Program& program, const Node& node);

}  // namespace tensor_ops::decode
