// What every op file includes. The file is compiled once per instruction-set level, with
// TENSOR_OPS_LEVEL naming the level's namespace, for its kernels, and once at the baseline for its
// declaration:
//
//     #include "op.h"
//     #if KERNEL_PASS
//     #include "kernels/..."
//     namespace tensor_ops::TENSOR_OPS_LEVEL { EXPORT_KERNELS(name, ...) }
//     #else
//     #include "declaration/ops/name.h"
//     DECLARE_OP(name, nanoseconds(...))
//     #endif
//
// Code of a kernel pass must neither run on a lesser CPU nor be linked into code that does: no
// static constructors, and nothing with vague linkage outside the level's namespace
// (check_kernels.cmake looks).
#pragma once

#include "launch/run.h"

#ifdef TENSOR_OPS_LEVEL

#define KERNEL_PASS 1

// The arguments after the name: one DTypeKernels per variant of the op.
#define EXPORT_KERNELS(op, ...)          \
  extern const KernelTable op##_kernels; \
  constexpr KernelTable op##_kernels = {{__VA_ARGS__}};

#else

#define KERNEL_PASS 0

#include "declaration/registry.h"
#include "isa/levels.h"
#include "launch/op.h"

// The cost is a call of nanoseconds(); declarations::op is what all backends declare of the op.
#define DECLARE_OP(op, cost)                                                        \
  namespace tensor_ops {                                                            \
  TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_IMPORT_KERNELS, op)                          \
  static const Op op##_op{                                                          \
      declarations::op, cost, {TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_KERNELS, op)}}; \
  static const Registration op##_registration{op##_op};                             \
  }

#define TENSOR_OPS_IMPORT_KERNELS(op, level, name) \
  namespace level {                                \
  extern const KernelTable op##_kernels;           \
  }
#define TENSOR_OPS_KERNELS(op, level, name) &level::op##_kernels,

#endif
