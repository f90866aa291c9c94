// What a node's file, decode/nodes/<kind>.cpp, includes. Like an op's file it is compiled once per
// instruction-set level, with TENSOR_OPS_LEVEL naming the level's namespace, for its kernels, and
// once at the baseline to enter them:
//
//     #include "decode/executor/node.h"
//     #if KERNEL_PASS
//     namespace tensor_ops::TENSOR_OPS_LEVEL { EXPORT_NODE(kind, ...) }
//     #else
//     namespace tensor_ops::decode { DECLARE_NODE(kind, scratch) }
//     #endif
//
// What native/op.h says of kernel passes holds here too. The slots and attributes of the kind are
// in decode/program/node_slots.h, which tools/node_kinds.py writes from its file in Python.
#pragma once

#include "decode/executor/share.h"

#ifdef TENSOR_OPS_LEVEL

#define KERNEL_PASS 1

// The arguments after the name: the first phase, and the second if there is one.
#define EXPORT_NODE(kind, ...)                  \
  extern const decode::NodeKernels kind##_node; \
  constexpr decode::NodeKernels kind##_node = {__VA_ARGS__};

#else

#define KERNEL_PASS 0

#include "decode/executor/node_kernels.h"
#include "isa/levels.h"

// scratch: a ScratchOf, or nullptr.
#define DECLARE_NODE(kind, scratch)                       \
  }                                                       \
  namespace tensor_ops {                                  \
  TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_IMPORT_NODE, kind) \
  }                                                       \
  namespace tensor_ops::decode {                          \
  static const NodeRegistration kind##_registration{      \
      #kind, scratch, {TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_NODE, kind)}};

#define TENSOR_OPS_IMPORT_NODE(kind, level, name) \
  namespace level {                               \
  extern const decode::NodeKernels kind##_node;   \
  }
#define TENSOR_OPS_NODE(kind, level, name) &tensor_ops::level::kind##_node,

#endif
