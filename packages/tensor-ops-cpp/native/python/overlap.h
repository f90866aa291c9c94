// Which overlaps of an output with the other arrays are allowed: exactly the same view of a
// full-shape input, and nothing else.
#pragma once

namespace tensor_ops {

struct Op;
struct CheckedCall;

// Throws ValueError.
void check_overlap(const Op& op, const CheckedCall& call);

}  // namespace tensor_ops
