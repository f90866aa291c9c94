// What a node of the kind sample does in double arithmetic: compiled once, for every level.
#pragma once

#include "decode/executor/share.h"

namespace tensor_ops::decode {

// The scratch for rows of n logits.
Scratch draw_scratch(std::size_t n);

// The row of logits with the edits of a slot, in scratch.
const float* edited(const Share& share, const float* x, std::size_t n, std::size_t slot);

// The token for a row of n logits, drawn with the parameters of its slot. No logit is NaN, and the
// largest is more than minus infinity.
std::int32_t draw(const Share& share, const float* x, std::size_t n, std::size_t token,
                  float largest);

}  // namespace tensor_ops::decode
