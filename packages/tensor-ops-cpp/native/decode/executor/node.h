// What a node's file, decode/nodes/<kind>.cpp, includes. Like an op's file it is compiled once per
// instruction-set level, with TENSOR_OPS_LEVEL naming the level's namespace, for its kernels, and
// once at the baseline to enter them:
//
//     #include "decode/executor/node.h"
//     #if KERNEL_PASS
//     namespace tensor_ops::TENSOR_OPS_LEVEL { ... }
//     #endif
//     DEFINE_NODE(kind, scratch, first_phase, second_phase)
//
// `scratch` is a ScratchOf, which is declared in namespace tensor_ops::decode where KERNEL_PASS is
// 0, or nullptr. There may be one phase, or what else NodeKernels has after the second.
//
// What native/op.h says of kernel passes holds here too. The slots and attributes of the kind are
// in decode/program/node_slots.h, which tools/node_kinds.py writes from its file in Python.
#pragma once

#include "decode/executor/share.h"

#ifdef TENSOR_OPS_LEVEL

#define KERNEL_PASS 1

#define DEFINE_NODE(kind, scratch, ...)                      \
  namespace tensor_ops::TENSOR_OPS_LEVEL {                   \
  extern const decode::NodeKernels kind##_node;              \
  constexpr decode::NodeKernels kind##_node = {__VA_ARGS__}; \
  }

#else

#define KERNEL_PASS 0

#include "decode/executor/node_kernels.h"
#include "isa/levels.h"

#define DEFINE_NODE(kind, scratch, ...)                                    \
  namespace tensor_ops {                                                   \
  TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_IMPORT_NODE, kind)                  \
  namespace decode {                                                       \
  static const NodeRegistration kind##_registration{                       \
      #kind, scratch, {TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_NODE, kind)}}; \
  }                                                                        \
  }

#define TENSOR_OPS_IMPORT_NODE(kind, level, name) \
  namespace level {                               \
  extern const decode::NodeKernels kind##_node;   \
  }
#define TENSOR_OPS_NODE(kind, level, name) &tensor_ops::level::kind##_node,

#endif
