// Included by a node's file, decode/nodes/<kind>.cpp. Like an op's file it is compiled once per
// instruction-set level, with TENSOR_OPS_LEVEL naming the level's namespace:
//
//     #include "decode/executor/node.h"
//     namespace tensor_ops::TENSOR_OPS_LEVEL { ... }
//     DEFINE_NODE(kind, first_phase, second_phase)
//
// There may be one phase, or what else NodeKernels has after the second. CMake lists the files for
// node_kernels.cpp, and joins those of a level to one unit: names are unique among them.
//
// The rules of native/op.h for kernel passes apply here. The slots and attributes of the kind are
// in decode/program/node_slots.h, which tools/node_kinds.py writes from its file in Python.
#pragma once

#include "decode/executor/share.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <decode::RowKernel row>
void run_rows(const decode::Share& share) {
  const std::size_t end = share.end_of(share.rows);
  for (std::size_t r = share.begin_of(share.rows); r < end; ++r)
    row(share, r, share.out() + r * share.columns);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#define DEFINE_NODE(kind, ...)                               \
  namespace tensor_ops::TENSOR_OPS_LEVEL {                   \
  extern const decode::NodeKernels kind##_node;              \
  constexpr decode::NodeKernels kind##_node = {__VA_ARGS__}; \
  }

// A node that computes each row by itself, from one input.
#define DEFINE_NODE_BY_ROWS(kind, row) DEFINE_NODE(kind, run_rows<row>, nullptr, true, nullptr, row)
