// Memory that a node's kernels use within a step. Each node describes its scratch once, in pieces:
// the plan asks for their size, and the kernels for pointers to them.
#pragma once

#include <cstddef>

#include "decode/program/pieces.h"

namespace tensor_ops::decode {

// The scratch that each thread has of its own, and the scratch that all threads share.
struct Scratch {
  std::size_t own = 0, shared = 0;  // bytes
};

}  // namespace tensor_ops::decode
