// Programs of version 1, whose nodes could be a norm, a gate or a sum and a product in one.
// tensor_ops_decode/program/combined_nodes.py does the same.
#pragma once

#include "decode/program/json_fields.h"

namespace tensor_ops::decode {

// The JSON of a program of version 1 as one of version 2, and any other as it is. Nodes that have
// not the expected form are left for those who read the program.
Json version_2_of(Json program);

}  // namespace tensor_ops::decode
