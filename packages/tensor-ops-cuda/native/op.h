// What every op file includes:
//
//     #include "op.h"
//     #include "kernels/..."
//     namespace tensor_ops { DECLARE_OP(name, launcher, {...}) }
#pragma once

#include "declaration/registry.h"
#include "launch/op.h"

// The launcher enqueues the op's kernels; the rest is a braced Declaration.
#define DECLARE_OP(op, launcher, ...)             \
  static const Op op##_op{__VA_ARGS__, launcher}; \
  static const Registration op##_registration{op##_op};
