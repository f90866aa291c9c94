#include "launch/problem.h"

#include <algorithm>

namespace tensor_ops {
namespace {

// The array's axes are x's last ones; axes that it lacks, or that have length 1 there, repeat.
void add_operand(Problem& problem, const ArrayView* given, std::int64_t length, bool is_output) {
  Operand& operand = problem.operand[problem.operands++];
  operand.data = nullptr;
  operand.dtype = given ? given->dtype : problem.dtype;
  operand.length = length;
  operand.element_stride = operand.item_size();
  operand.is_output = is_output;
  std::fill_n(operand.stride, problem.axes, 0);
  if (!given) return;
  const ArrayView& array = *given;
  operand.data = array.data;
  const int last = array.dims - 1, offset = problem.axes - last;
  for (int d = 0; d < last; ++d)
    if (array.shape[d] != 1) operand.stride[d + offset] = array.strides[d];
  if (length > 1)
    operand.element_stride = last < 0 || array.shape[last] == 1 ? 0 : array.strides[last];
}

template <class Predicate>
bool all_operands(const Problem& problem, Predicate predicate) {
  return std::all_of(problem.operand, problem.operand + problem.operands,
                     [&](const Operand& each) { return !each.data || predicate(each); });
}

void drop_axis(Problem& problem, int axis) {
  std::copy(problem.extent + axis + 1, problem.extent + problem.axes, problem.extent + axis);
  for (int k = 0; k < problem.operands; ++k) {
    std::int64_t* stride = problem.operand[k].stride;
    std::copy(stride + axis + 1, stride + problem.axes, stride + axis);
  }
  --problem.axes;
}

bool are_one(const Problem& problem, int axis) {
  const std::int64_t inner = problem.extent[axis + 1];
  return all_operands(problem, [=](const Operand& each) {
    return each.stride[axis] == inner * each.stride[axis + 1];
  });
}

// The outer axis takes the place of both.
void merge_axes(Problem& problem, int axis) {
  problem.extent[axis + 1] *= problem.extent[axis];
  drop_axis(problem, axis);
}

bool is_one_row(const Problem& problem) {
  const int last = problem.axes - 1;
  return last >= 0 && all_operands(problem, [&](const Operand& each) {
           return each.length == problem.n &&
                  each.stride[last] == each.length * each.element_stride;
         });
}

void lengthen_rows(Problem& problem) {
  problem.n *= problem.extent[--problem.axes];
  for (int k = 0; k < problem.operands; ++k) problem.operand[k].length = problem.n;
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
  for (int d = problem.axes - 1; d >= 0; --d)
    if (problem.extent[d] == 1) drop_axis(problem, d);
  for (int d = problem.axes - 2; d >= 0; --d)
    if (are_one(problem, d)) merge_axes(problem, d);
  if (problem.op->walk != Walk::kElements) return;
  if (problem.n == 1 && problem.axes > 0) take_axis_for_row(problem);
  while (is_one_row(problem)) lengthen_rows(problem);
}

}  // namespace tensor_ops
