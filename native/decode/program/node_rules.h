// Parts of reading a program: its version, and whether what a node names fits together.
#pragma once

#include "decode/program/json_fields.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

// Throws ValueError, which names the node, the slot, what was given and what is expected. Sets the
// bounds that the integers of the node's inputs must be below, and that those of its outputs are
// below.
void check_node(Program& program, Node& node);

// The JSON of a program of version 1, whose nodes could be a norm, a gate or a sum and a product in
// one, as one of version 2, and any other as it is; program/combined_nodes.py does the same. Nodes
// that have not the expected form are left for those who read the program.
Json version_2_of(Json program);

}  // namespace tensor_ops::decode
