// What every op file includes:
//
//     #include "op.h"
//     #include "kernels/..."
//     namespace tensor_ops { DECLARE_OP(name, {...}) }
#pragma once

#include "launch/declaration.h"

// The arguments after the name: a braced Op.
#define DECLARE_OP(op, ...)            \
  static const Op op##_op __VA_ARGS__; \
  static const Registration op##_registration{op##_op};
