// The ops that are compiled in: those with a file in ops/. op_files.h, which CMake writes, includes
// the declaration of each.
#include "declaration/registry.h"
#include "isa/levels.h"
#include "launch/op.h"
#include "op_files.h"

#define TENSOR_OPS_DECLARE_KERNELS(op, level, name) \
  namespace level {                                 \
  extern const KernelTable op##_kernels;            \
  }
#define TENSOR_OPS_KERNELS(op, level, name) &level::op##_kernels,
#define TENSOR_OPS_ENTER(op)                                                                      \
  TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_DECLARE_KERNELS, op)                                       \
  static const Op op##_op{declarations::op, {TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_KERNELS, op)}}; \
  static const Registration op##_registration{op##_op};

namespace tensor_ops {

TENSOR_OPS_FOR_EACH_OP(TENSOR_OPS_ENTER)

}  // namespace tensor_ops
