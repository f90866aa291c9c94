// Included by every op file. The file is compiled once per instruction-set level, with
// TENSOR_OPS_LEVEL naming the level's namespace:
//
//     #include "kernels/..."
//     #include "op.h"
//     namespace tensor_ops::TENSOR_OPS_LEVEL { ... }
//     EXPORT_KERNELS(name, nanoseconds(...), ...)
//
// CMake lists the files for launch/ops.cpp, and joins those of a level that end in _backward.cpp to
// one unit: names are unique among them. Their code must neither run on a lesser CPU nor be linked
// into code that does: no static constructors, and nothing with vague linkage outside the level's
// namespace (check_kernels.cmake looks).
#pragma once

#include "launch/run.h"

// The arguments after the cost: one DTypeKernels per variant of the op.
#define EXPORT_KERNELS(op, cost, ...)                         \
  namespace tensor_ops::TENSOR_OPS_LEVEL {                    \
  extern const KernelTable op##_kernels;                      \
  constexpr KernelTable op##_kernels = {cost, {__VA_ARGS__}}; \
  }
