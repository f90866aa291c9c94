#include "launch/problem.h"

#include <algorithm>

#include "declaration/operand_axes.h"

namespace tensor_ops {
namespace {

// Rows of one element: what lies apart by the last leading axis becomes a row.
void take_axis_for_row(Problem& problem) {
  problem.n = problem.extent[--problem.axes];
  for (int k = 0; k < problem.operands; ++k) {
    Operand& each = problem.operand[k];
    each.length = problem.n;
    each.element_stride = each.stride[problem.axes];
  }
}

}  // namespace

Problem make_problem(const OpCall& call) {
  const ArrayView& x = *call.array[0];
  Problem problem;
  problem.op = call.op;
  problem.dtype = x.dtype;
  problem.variant = call.variant;
  std::copy_n(call.scalars, kMaxScalars, problem.scalar);
  problem.axes = std::max(0, x.dims - 1);
  problem.n = x.dims ? x.shape[problem.axes] : 1;
  std::copy_n(x.shape, problem.axes, problem.extent);
  problem.operands = call.inputs + static_cast<int>(call.op->outputs.size());
  make_operands(call, problem.n, problem.axes, problem.operand, problem.operands);
  return problem;
}

void collapse(Problem& problem) {
  problem.axes = merge_axes(problem.extent, problem.axes, problem.operand, problem.operands);
  if (problem.op->walk != Walk::kElements) return;
  if (problem.n == 1 && problem.axes > 0) take_axis_for_row(problem);
  problem.axes =
      merge_rows(problem.n, problem.extent, problem.axes, problem.operand, problem.operands);
}

}  // namespace tensor_ops
