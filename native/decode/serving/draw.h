// Draws a token from a row of logits, for the node `sample`, in double arithmetic.
// Tested by tests/decode/scheduling/test_sampling.py.
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode/program/step.h"

namespace tensor_ops::decode {

// The bytes of scratch for a row of n logits, which are aligned to 64 bytes; Pieces::kTooLarge
// where that is more than any memory.
std::size_t draw_scratch(std::size_t n);

// The index of the largest of n numbers, the first one of equals; -1 if one is NaN, or all are
// minus infinity.
using Argmax = std::int32_t (*)(const float* x, std::size_t n);
std::int32_t argmax(const float* x, std::size_t n);

// The token for a row of n logits, which are those of token number `token` of the step: drawn with
// the parameters of its slot, from the logits with the slot's edits. -1 where argmax() says so. An
// executor may have a faster argmax of its own.
std::int32_t sample(const Step& step, const float* x, std::size_t n, std::size_t token,
                    unsigned char* scratch, Argmax largest_of = argmax);

}  // namespace tensor_ops::decode
