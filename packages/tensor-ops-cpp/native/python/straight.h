// Calls whose arrays all lie row behind row in memory, as most do. What one thread does for such a
// call is one call of the kernel, and takes no plan.
#pragma once

#include <cstddef>

#include "arrays/results.h"
#include "launch/declaration.h"
#include "python/checks.h"

namespace tensor_ops {

struct StraightRows {
  char* data[kMaxArrays];
  std::ptrdiff_t stride[kMaxArrays];
  std::size_t rows, n;
};

// False where an array lies otherwise or is not aligned. Nothing may be empty.
bool lie_straight(const Op& op, const CheckedCall& call, const Result* outputs,
                  std::size_t elements, StraightRows& rows);

}  // namespace tensor_ops
