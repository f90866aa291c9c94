#include "launch/launch.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "launch/arguments.h"
#include "launch/cache.h"
#include "launch/checks.h"
#include "launch/dtypes.h"
#include "launch/errors.h"
#include "launch/float_mode.h"
#include "launch/isa.h"
#include "launch/plan.h"
#include "launch/result_pool.h"
#include "launch/results.h"
#include "launch/straight.h"
#include "launch/streams.h"
#include "launch/threads.h"

namespace tensor_ops {
namespace {

Plan new_plan(const Op& op, const CheckedCall& call) {
  PyArrayObject* x = call.array[0];
  Plan plan;
  plan.walk = op.walk;
  plan.item_size = kItemSizes[call.dtype];
  plan.operands = 0;
  plan.dims = std::max(0, PyArray_NDIM(x) - 1);
  plan.n = PyArray_NDIM(x) ? static_cast<std::size_t>(PyArray_DIM(x, plan.dims)) : 1;
  plan.rows = 1;
  for (int d = 0; d < plan.dims; ++d) {
    plan.shape[d] = static_cast<std::size_t>(PyArray_DIM(x, d));
    plan.rows *= plan.shape[d];
  }
  return plan;
}

Operand& add_operand(Plan& plan, std::size_t length, bool is_output) {
  Operand& operand = plan.operand[plan.operands++];
  operand.data = nullptr;
  operand.length = length;
  operand.element_stride = static_cast<std::ptrdiff_t>(plan.item_size);
  operand.is_output = is_output;
  std::fill_n(operand.stride, plan.dims, 0);
  return operand;
}

// The array's axes are the plan's last ones; axes that it lacks, or that have length 1 there,
// repeat.
void add_array(Plan& plan, PyArrayObject* array, std::size_t length, bool is_output) {
  Operand& operand = add_operand(plan, length, is_output);
  operand.data = PyArray_BYTES(array);
  const int dims = PyArray_NDIM(array);
  if (dims == 0) {
    if (length > 1) operand.element_stride = 0;
    return;
  }
  const int offset = plan.dims + 1 - dims;
  for (int d = 0; d < dims - 1; ++d)
    if (PyArray_DIM(array, d) != 1) operand.stride[d + offset] = PyArray_STRIDE(array, d);
  if (length > 1)
    operand.element_stride =
        PyArray_DIM(array, dims - 1) == 1 ? 0 : PyArray_STRIDE(array, dims - 1);
}

Plan make_plan(const Op& op, const CheckedCall& call, const Result* outputs) {
  Plan plan = new_plan(op, call);
  for (int k = 0; k < call.arrays; ++k) {
    const std::size_t length = call.kind[k] == Kind::kHalfRows ? plan.n / 2 : plan.n;
    if (call.array[k])
      add_array(plan, call.array[k], length, false);
    else
      add_operand(plan, length, false);
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    add_array(plan, outputs[i].array(), plan.n, true);
  simplify(plan);
  return plan;
}

// Letting other threads run costs as much as a few hundred elements; NumPy's ufuncs draw the same
// line.
class ReleasedGil {
 public:
  explicit ReleasedGil(std::size_t elements) {
    if (elements >= 500) state_ = PyEval_SaveThread();
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  // When the interpreter ends, CPython before 3.14 ends a daemon thread that asks for the GIL by
  // unwinding its stack. That must neither leave a destructor nor, without the GIL, drop our
  // references: the thread waits for the process to end instead, as it does in 3.14.
  ~ReleasedGil() {
    if (!state_) return;
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }

 private:
  PyThreadState* state_ = nullptr;
};

void populate_results(const Op& op, const CheckedCall& call, const Result* outputs,
                      std::size_t bytes) {
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    if (!call.out[i]) outputs[i].populate(bytes);
}

// Whether a call reads and writes more than stays in the cache until somebody reads the results,
// and writes to places that it does not read: those lines are in the cache anyway. Ordinary stores
// are worth it a little longer where reading and writing take turns anyway; rows that are measured
// first are written while the next one is measured only if they are streamed.
bool should_stream(const CheckedCall& call, const Result* outputs, std::size_t count,
                   std::size_t bytes_each, bool measures_rows) {
  std::size_t bytes = count * bytes_each;
  for (int k = 0; k < call.arrays; ++k) {
    if (!call.array[k]) continue;
    bytes += static_cast<std::size_t>(PyArray_NBYTES(call.array[k]));
    for (std::size_t i = 0; i < count; ++i)
      if (PyArray_DATA(call.array[k]) == PyArray_DATA(outputs[i].array())) return false;
  }
  const std::size_t threshold = streaming_threshold();
  return bytes >= (measures_rows ? threshold : threshold + threshold / 2);
}

void compute_straight(Kernel kernel, const StraightRows& rows, const double* scalars,
                      bool streams) {
  const DefaultFloatMode mode;
  kernel({rows.data, rows.stride, rows.rows, rows.n, scalars, streams});
  if (streams) finish_streams();
}

// Rows that are not contiguous or not aligned are gathered, which takes memory.
void compute_by_plan(const Op& op, const Plan& plan, Kernel kernel, const RowSteps& steps,
                     const double* scalars, int threads) {
  for (;;) {
    try {
      if (should_share_rows(plan, steps, threads))
        return execute_sharing_rows(plan, steps, scalars, threads);
      return execute(plan, kernel, scalars, threads);
    } catch (const std::bad_alloc&) {
      if (trim_pool() > 0) continue;
      throw MemoryError(text(op.name,
                             ": no memory to gather the rows of arrays whose rows are not "
                             "contiguous or not aligned"));
    }
  }
}

void compute(const Op& op, const CheckedCall& call, const Result* outputs, std::size_t elements,
             Kernel kernel, const RowSteps& steps) {
  const int threads = call.threads
                          ? sensible_threads(call.threads)
                          : threads_for(op.cost[call.dtype] * static_cast<double>(elements));
  const std::size_t bytes_each = elements * kItemSizes[call.dtype];
  const bool streams = should_stream(call, outputs, op.outputs.size(), bytes_each, steps.count > 1);
  StraightRows rows;
  if (threads == 1 && lie_straight(op, call, outputs, elements, rows)) {
    const ReleasedGil released(elements);
    populate_results(op, call, outputs, bytes_each);
    return compute_straight(kernel, rows, call.scalar, streams);
  }
  Plan plan = make_plan(op, call, outputs);
  plan.streams = streams;
  const ReleasedGil released(elements);
  if (threads == 1) populate_results(op, call, outputs, bytes_each);
  compute_by_plan(op, plan, kernel, steps, call.scalar, threads);
}

}  // namespace

Owned launch(const Op& op, PyObject* const* args, Py_ssize_t positional, PyObject* keyword_names) {
  const IsaChoice& isa = isa_choice();
  if (!isa.reason.empty())
    throw std::runtime_error(text(op.name, ": tensor_ops_cpp is unavailable: ", isa.reason));
  const CheckedCall call = check(op, sort_arguments(op, args, positional, keyword_names));
  const auto elements = static_cast<std::size_t>(size_of(call.array[0]));
  Result outputs[2];
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    outputs[i].prepare(op, call, i, elements * kItemSizes[call.dtype]);
  const DTypeKernels& kernels = op.kernels[isa.index]->variant[call.variant];
  if (elements > 0)
    compute(op, call, outputs, elements, kernels.kernel[call.dtype], kernels.steps[call.dtype]);
  Owned first = outputs[0].release();
  if (op.outputs.size() == 1) return first;
  const Owned second = outputs[1].release();
  Owned pair(PyTuple_Pack(2, first.get(), second.get()));
  if (!pair) throw PythonError();
  return pair;
}

}  // namespace tensor_ops
