#include "python/call.h"

#include <algorithm>

#include "arrays/results.h"
#include "binding/checks.h"
#include "declaration/errors.h"
#include "launch/run.h"
#include "launch/staging.h"
#include "python/host_device.h"

namespace tensor_ops {
namespace {

Problem new_problem(const Op& op, const CheckedCall& call) {
  const View& x = call.array[0].view;
  Problem problem;
  problem.op = &op;
  problem.dtype = x.dtype;
  problem.variant = call.variant;
  std::copy_n(call.scalar, kMaxScalars, problem.scalar);
  problem.axes = std::max(0, x.dims - 1);
  problem.n = x.dims ? x.shape[problem.axes] : 1;
  std::copy_n(x.shape, problem.axes, problem.extent);
  problem.operands = 0;
  return problem;
}

// The view's axes are x's last ones; axes that it lacks, or that have length 1 there, repeat.
void add_operand(Problem& problem, const View* view, std::int64_t length, bool is_output) {
  Operand& operand = problem.operand[problem.operands++];
  operand.data = nullptr;
  operand.dtype = view ? view->dtype : problem.dtype;
  operand.length = length;
  operand.element_stride = operand.item_size();
  operand.is_output = is_output;
  std::fill_n(operand.stride, problem.axes, 0);
  if (!view) return;
  operand.data = view->data;
  const int last = view->dims - 1, offset = problem.axes - last;
  for (int d = 0; d < last; ++d)
    if (view->shape[d] != 1) operand.stride[d + offset] = view->stride[d];
  if (length > 1)
    operand.element_stride = last < 0 || view->shape[last] == 1 ? 0 : view->stride[last];
}

Problem make_problem(const Op& op, const CheckedCall& call, const View* const* outputs) {
  Problem problem = new_problem(op, call);
  for (int k = 0; k < call.arrays; ++k) {
    const bool is_half = call.kind[k] == Kind::kHalfRows;
    add_operand(problem, call.array[k].object ? &call.array[k].view : nullptr,
                is_half ? problem.n / 2 : problem.n, false);
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    add_operand(problem, outputs[i], problem.n, true);
  return problem;
}

// Device arrays hold the GIL: enqueueing takes less time than letting go of it.
void run(const Problem& problem, const DeviceFacts& device, const Place& place) {
  if (!place.is_host()) return run_on_device(problem, device, place.stream());
  const ReleasedGil released;
  run_from_host(problem, device);
}

void release(CheckedCall& call) {
  Array* arrays[kMaxArrays];
  int count = 0;
  for (Array& each : call.array)
    if (each.object) arrays[count++] = &each;
  for (Array& each : call.out)
    if (each.object && count < kMaxArrays) arrays[count++] = &each;
  call.reader.release(arrays, count);
}

Owned compute(const Op& op, CheckedCall& call) {
  const int index = call.reader.is_host() ? chosen_host_device() : call.reader.device();
  const DeviceFacts& device = usable_device(index);
  const CurrentDevice current(index);
  Result result[2];
  const View* outputs[2];
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (!call.out[i].object)
      result[i].allocate(op.name, call.array[0], call.array[op.outputs[i].like].dtype(),
                         call.reader);
    outputs[i] = call.out[i].object ? &call.out[i].view : &result[i].view();
  }
  if (call.array[0].view.size() > 0) run(make_problem(op, call, outputs), device, call.reader);
  if (!call.reader.is_host()) release(call);
  Owned objects[2];
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    objects[i] =
        call.out[i].object ? Owned::borrow(call.out[i].object) : result[i].object(call.array[0]);
  if (op.outputs.size() == 1) return std::move(objects[0]);
  Owned pair(PyTuple_Pack(2, objects[0].get(), objects[1].get()));
  if (!pair) throw PythonError();
  return pair;
}

}  // namespace

Owned call(const Op& op, PyObject* const* args, Py_ssize_t positional, PyObject* keyword_names) {
  try {
    CheckedCall checked(op);
    check(op, sort_arguments(op, args, positional, keyword_names), checked);
    return compute(op, checked);
  } catch (const UnavailableError& error) {
    throw UnavailableError(text(op.name, ": tensor_ops_cuda is unavailable: ", error.what()));
  }
}

}  // namespace tensor_ops
