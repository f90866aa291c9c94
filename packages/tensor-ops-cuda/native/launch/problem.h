// An OpCall as the CUDA backend runs it: plain data, addresses, extents and strides. The memory may
// be the host's or a device's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "declaration/op_call.h"
#include "declaration/shared.h"
#include "launch/op.h"

namespace tensor_ops {

// Strides are in bytes. Where an operand repeats along an axis, its stride is 0.
struct Operand {
  char* data = nullptr;  // null for an optional array that was not given
  DType dtype;
  std::int64_t length;  // elements in a row
  std::int64_t element_stride;
  std::int64_t stride[kMaxDims];  // per leading axis
  bool is_output = false;

  std::int64_t item_size() const { return static_cast<std::int64_t>(kItemSizes[dtype]); }
};

struct Problem {
  const Op* op;
  DType dtype;  // of the first operand
  std::size_t variant;
  double scalar[kMaxScalars];
  std::int64_t n;  // elements in a row of the first operand
  int axes;        // leading axes
  std::int64_t extent[kMaxDims];
  int operands;
  Operand operand[kMaxArrays];

  std::int64_t rows() const {
    std::int64_t count = 1;
    for (int d = 0; d < axes; ++d) count *= extent[d];
    return count;
  }
};

TENSOR_OPS_SHARED Problem make_problem(const OpCall& call);

// An array of the same axes as a problem's, the last one included.
inline bool repeats(const Problem& problem, const Operand& operand, int axis) {
  return operand.stride[axis] == 0 && problem.extent[axis] > 1;
}

// Makes one of leading axes that lie one after another in every operand, drops those of length 1,
// and for elementwise ops makes one long row of rows that lie one after another.
void collapse(Problem& problem);

}  // namespace tensor_ops
