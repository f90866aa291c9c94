#include "launch/problem.h"

#include <algorithm>

#include "declaration/operand_axes.h"

namespace tensor_ops {
namespace {

void add_operand(Problem& problem, const ArrayView* given, std::int64_t length, bool is_output) {
  Operand& operand = problem.operand[problem.operands++];
  operand.data = nullptr;
  operand.dtype = given ? given->dtype : problem.dtype;
  operand.length = length;
  operand.element_stride = operand.item_size();
  operand.is_output = is_output;
  std::fill_n(operand.stride, problem.axes, 0);
  if (given) take_strides(operand, *given, problem.axes);
}

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
  problem.operands = 0;
  for (int k = 0; k < call.inputs; ++k) {
    const bool is_half = call.kind[k] == Kind::kHalfRows;
    add_operand(problem, call.array[k], is_half ? problem.n / 2 : problem.n, false);
  }
  for (std::size_t i = 0; i < call.op->outputs.size(); ++i)
    add_operand(problem, call.array[call.inputs + static_cast<int>(i)], problem.n, true);
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
