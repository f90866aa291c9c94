// Included by every op file:
//
//     #include "declaration/ops/name.h"
//     #include "kernels/..."
//     #include "op.h"
//     DECLARE_OP(name, launcher)
#pragma once

#include "declaration/registry.h"
#include "launch/op.h"

// The launcher enqueues the op's kernels; declarations::op is what all backends declare of the op.
#define DECLARE_OP(op, launcher)                        \
  namespace tensor_ops {                                \
  static const Op op##_op{declarations::op, launcher};  \
  static const Registration op##_registration{op##_op}; \
  }
