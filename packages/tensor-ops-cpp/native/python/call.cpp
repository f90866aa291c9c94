#include "python/call.h"

#include <algorithm>

#include "arrays/results.h"
#include "binding/checks.h"
#include "declaration/errors.h"
#include "isa/float_mode.h"
#include "isa/isa.h"
#include "launch/plan.h"
#include "memory/cache.h"
#include "memory/result_pool.h"
#include "memory/streaming_stores.h"
#include "python/contiguous_rows.h"
#include "threads/threads.h"

namespace tensor_ops {
namespace {

Plan new_plan(const Op& op, const CheckedCall& call) {
  PyArrayObject* x = call.array[0].view;
  Plan plan;
  plan.walk = op.walk;
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

Operand& add_operand(Plan& plan, std::size_t length, std::size_t item_size, bool is_output) {
  Operand& operand = plan.operand[plan.operands++];
  operand.data = nullptr;
  operand.length = length;
  operand.item_size = item_size;
  operand.element_stride = static_cast<std::ptrdiff_t>(item_size);
  operand.is_output = is_output;
  std::fill_n(operand.stride, plan.dims, 0);
  return operand;
}

// The array's axes are the plan's last ones; axes that it lacks, or that have length 1 there,
// repeat.
void add_array(Plan& plan, PyArrayObject* array, std::size_t length, bool is_output) {
  const auto item_size = static_cast<std::size_t>(PyArray_ITEMSIZE(array));
  Operand& operand = add_operand(plan, length, item_size, is_output);
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
    if (call.array[k].object)
      add_array(plan, call.array[k].view, length, false);
    else
      add_operand(plan, length, kItemSizes[call.array[0].dtype()], false);
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    add_array(plan, outputs[i].array(), plan.n, true);
  simplify(plan);
  return plan;
}

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

// Which arrays are float32 beside an x of a half dtype: a sum of Mixture's.
int mixture_of(const CheckedCall& call) {
  int mixture = kOneDType;
  for (int k = 1; k < call.arrays; ++k) {
    const Array& array = call.array[k];
    if (array.object && array.dtype() != call.array[0].dtype())
      mixture |= call.kind[k] == Kind::kRows ? kWideRows : kWideParameters;
  }
  return mixture;
}

void populate_results(const Op& op, const CheckedCall& call, const Result* outputs) {
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    if (!call.out[i].object) outputs[i].populate();
}

// Whether a call reads and writes more than stays in the cache until somebody reads the results,
// and writes to places that it does not read: those lines are in the cache anyway. Ordinary stores
// are worth it a little longer where reading and writing take turns anyway; rows that are measured
// first are written while the next one is measured only if they are streamed.
bool should_stream(const CheckedCall& call, const Result* outputs, std::size_t count,
                   bool measures_rows) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += outputs[i].bytes();
  for (int k = 0; k < call.arrays; ++k) {
    if (!call.array[k].object) continue;
    PyArrayObject* array = call.array[k].view;
    bytes += bytes_of(array);
    for (std::size_t i = 0; i < count; ++i)
      if (PyArray_DATA(array) == PyArray_DATA(outputs[i].array())) return false;
  }
  const std::size_t threshold = streaming_threshold();
  return bytes >= (measures_rows ? threshold : threshold + threshold / 2);
}

void compute_contiguous(Kernel kernel, const ContiguousRows& rows, const double* scalars,
                        bool streams) {
  const DefaultFloatMode mode;
  kernel({rows.data, rows.stride, rows.rows, rows.n, scalars, streams});
  if (streams) finish_streaming_stores();
}

// Rows that are not contiguous or not aligned are gathered, which takes memory.
void compute_by_plan(const Op& op, const Plan& plan, const RowKernel& kernel, const double* scalars,
                     int threads) {
  for (;;) {
    try {
      if (should_share_rows(plan, *kernel.steps, threads))
        return execute_sharing_rows(plan, *kernel.steps, scalars, threads);
      return execute(plan, kernel.run, scalars, threads);
    } catch (const std::bad_alloc&) {
      if (trim_pool() > 0) continue;
      throw MemoryError(text(op.name,
                             ": no memory to gather the rows of arrays whose rows are not "
                             "contiguous or not aligned"));
    }
  }
}

void compute(const Op& op, const CheckedCall& call, const Result* outputs, std::size_t elements,
             const RowKernel& kernel, int wanted_threads) {
  const DType dtype = call.array[0].dtype();
  const int threads = wanted_threads ? sensible_threads(wanted_threads)
                                     : threads_for(op.cost[dtype] * static_cast<double>(elements));
  const bool streams = should_stream(call, outputs, op.outputs.size(), kernel.steps->count > 1);
  ContiguousRows rows;
  if (threads == 1 && as_contiguous_rows(op, call, outputs, elements, rows)) {
    const ReleasedGil released(is_worth_releasing_gil(elements));
    populate_results(op, call, outputs);
    return compute_contiguous(kernel.run, rows, call.scalar, streams);
  }
  Plan plan = make_plan(op, call, outputs);
  plan.streams = streams;
  const ReleasedGil released(is_worth_releasing_gil(elements));
  if (threads == 1) populate_results(op, call, outputs);
  compute_by_plan(op, plan, kernel, call.scalar, threads);
}

}  // namespace

Owned call(const Op& op, PyObject* const* args, Py_ssize_t positional, PyObject* keyword_names) {
  const IsaChoice& isa = isa_choice();
  if (!isa.reason.empty())
    throw UnavailableError(text(op.name, ": tensor_ops_cpp is unavailable: ", isa.reason));
  const Arguments arguments = sort_arguments(op, args, positional, keyword_names);
  const int threads = require_threads(op, arguments.keyword);
  CheckedCall call(op);
  check(op, arguments, call);
  const auto elements = static_cast<std::size_t>(size_of(call.array[0].view));
  Result outputs[2];
  for (std::size_t i = 0; i < op.outputs.size(); ++i) outputs[i].prepare(op, call, i);
  const DTypeKernels& kernels = op.kernels[isa.index]->variant[call.variant];
  const RowKernel& kernel = kernels.of[mixture_of(call)][call.array[0].dtype()];
  if (elements > 0) compute(op, call, outputs, elements, kernel, threads);
  Owned first = outputs[0].release();
  if (op.outputs.size() == 1) return first;
  const Owned second = outputs[1].release();
  Owned pair(PyTuple_Pack(2, first.get(), second.get()));
  if (!pair) throw PythonError();
  return pair;
}

}  // namespace tensor_ops
