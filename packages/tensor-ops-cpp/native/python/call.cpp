#include "binding/ops/call.h"

#include <algorithm>

#include "arrays/results.h"
#include "binding/ops/checks.h"
#include "declaration/errors.h"
#include "isa/isa.h"
#include "launch/ready_call.h"
#include "threads/pytorch_threads.h"

namespace tensor_ops {
namespace {

// Asked once, when the module is loaded: a call into the library takes time that small calls show.
const IsaChoice& isa = isa_choice();

// Letting other threads run costs as much as a few hundred elements; NumPy's ufuncs draw the same
// line.
bool is_worth_releasing_gil(std::size_t elements) { return elements >= 500; }

int require_threads(const Op& op, PyObject* object) {
  if (!object || object == Py_None) return 0;
  const bool is_integer =
      (PyLong_Check(object) && !PyBool_Check(object)) ||
      (PyArray_IsScalar(object, Integer) && !PyArray_IsScalar(object, Timedelta));
  if (!is_integer)
    throw TypeError(text(op.name, ": num_threads must be an int or None, got ", type_name(object)));
  const Owned index(PyNumber_Index(object));
  if (!index) throw PythonError();
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(index.get(), &overflow);
  if (overflow < 0 || (overflow == 0 && value < 1))
    throw ValueError(text(op.name, ": num_threads must be at least 1, got ", repr_text(object)));
  constexpr long kPlenty = 1 << 20;
  return static_cast<int>(overflow ? kPlenty : std::min(value, kPlenty));
}

void populate_results(const Op& op, const CheckedCall& call, const Result* outputs) {
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    if (!call.out[i].is_given()) outputs[i].populate();
}

void compute(const Op& op, const CheckedCall& call, const Result* outputs, int threads) {
  const OpCall op_call = call.to_op_call(op);
  if (call.array[0].size() == 0) return write_empty_sums(op_call);
  const TensorCall of_pytorch(call.reader.exchange() != nullptr);
  const ReadyCall ready(op_call, threads);
  const ReleasedGil released(is_worth_releasing_gil(ready.elements()));
  if (ready.threads() == 1) populate_results(op, call, outputs);
  ready.run();
}

}  // namespace

Owned call(const Op& op, const ParameterNames& names, PyObject* const* args, Py_ssize_t positional,
           PyObject* keyword_names) {
  if (!isa.reason.empty()) throw_unavailable(op, isa.reason);
  const Arguments arguments = sort_arguments(op, names, args, positional, keyword_names);
  const int threads = require_threads(op, arguments.keyword);
  CheckedCall call(op);
  check(op, arguments, call);
  Result outputs[kMaxOutputs];
  const std::size_t count = op.outputs.size();
  for (std::size_t i = 0; i < count; ++i) outputs[i].prepare(op, call, i);
  compute(op, call, outputs, threads);
  if (count == 1) return outputs[0].release();
  Owned all[kMaxOutputs];
  for (std::size_t i = 0; i < count; ++i) all[i] = outputs[i].release();
  Owned tuple(count == 2 ? PyTuple_Pack(2, all[0].get(), all[1].get())
                         : PyTuple_Pack(3, all[0].get(), all[1].get(), all[2].get()));
  if (!tuple) throw PythonError();
  return tuple;
}

}  // namespace tensor_ops
