// Calls whose arrays are all contiguous, as most are. What one thread does for such a call is one
// call of the kernel.
#pragma once

#include <cstddef>

#include "arrays/results.h"
#include "binding/checks.h"
#include "launch/op.h"

namespace tensor_ops {

struct ContiguousRows {
  char* data[kMaxArrays];
  std::ptrdiff_t stride[kMaxArrays];
  std::size_t rows, n;
};

// The rows of a call's arrays, the outputs last. False where an array is not contiguous or not
// aligned. Nothing may be empty.
bool as_contiguous_rows(const Op& op, const CheckedCall& call, const Result* outputs,
                        std::size_t elements, ContiguousRows& rows);

}  // namespace tensor_ops
