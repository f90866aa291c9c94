#include "binding/ops/call.h"

#include <algorithm>

#include "arrays/results.h"
#include "binding/ops/checks.h"
#include "declaration/errors.h"
#include "launch/run.h"
#include "python/host_device.h"

namespace tensor_ops {
namespace {

// Device arrays hold the GIL: enqueueing takes less time than letting go of it.
void run(const Problem& problem, const DeviceFacts& device, const ArrayReader& place) {
  if (!place.is_host()) return run_on_device(problem, device, place.stream());
  const ReleasedGil released;
  run_from_host(problem, device);
}

void release(CheckedCall& call) {
  Array* arrays[kMaxArrays];
  int count = 0;
  for (int k = 0; k < call.arrays; ++k)
    if (call.array[k].object) arrays[count++] = &call.array[k];
  for (Array& each : call.out)
    if (each.object && count < kMaxArrays) arrays[count++] = &each;
  call.reader.release(arrays, count);
}

Owned compute(const Op& op, CheckedCall& call) {
  const int index = call.reader.is_host() ? chosen_host_device() : call.reader.device();
  const DeviceFacts& device = usable_device(index);
  const CurrentDevice current(index);
  Result result[2];
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    if (!call.out[i].is_given())
      result[i].allocate(op.name, call.array[0], call.array[op.outputs[i].like].dtype, call.reader,
                         call.out[i]);
  if (call.array[0].size() > 0) run(make_problem(call.to_op_call(op)), device, call.reader);
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

Owned call(const Op& op, const ParameterNames& names, PyObject* const* args, Py_ssize_t positional,
           PyObject* keyword_names) {
  try {
    CheckedCall checked(op);
    check(op, sort_arguments(op, names, args, positional, keyword_names), checked);
    return compute(op, checked);
  } catch (const UnavailableError& error) {
    throw UnavailableError(text(op.name, ": tensor_ops_cuda is unavailable: ", error.what()));
  }
}

}  // namespace tensor_ops
