// Which overlaps of an output with the other arrays are allowed: exactly the same view of a
// full-shape input, and nothing else.
#pragma once

namespace tensor_ops {

struct CheckedCall;
struct Declaration;

// Throws ValueError.
void check_overlap(const Declaration& op, const CheckedCall& call);

}  // namespace tensor_ops
