#include "launch/ready_call.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "declaration/errors.h"
#include "declaration/operand_axes.h"
#include "isa/float_mode.h"
#include "isa/isa.h"
#include "memory/cache.h"
#include "memory/result_pool.h"
#include "threads/threads.h"

namespace tensor_ops {
namespace {

int arrays_of(const OpCall& call) {
  return call.inputs + static_cast<int>(call.op->outputs.size());
}

bool is_sum(const OpCall& call, int k) {
  return k >= call.inputs && call.op->is_sum(static_cast<std::size_t>(k - call.inputs));
}

// A sum of the Mixture of arrays that are float32 beside an x of a half dtype.
int mixture_of(const OpCall& call) {
  int mixture = kOneDType;
  for (int k = 1; k < call.inputs; ++k)
    if (call.array[k] && call.array[k]->dtype != call.array[0]->dtype)
      mixture |= call.kind[k] == ParameterKind::kRows ? kWideRows : kWideParameters;
  return mixture;
}

const KernelTable& kernels_of(const Op& op) { return *op.kernels[isa_choice().index]; }

// Streams where a call reads and writes more than stays in the cache until somebody reads the
// results, and writes to places that it does not read: those lines are in the cache anyway.
// Ordinary stores are worth it a little longer where reading and writing take turns anyway; rows
// that are measured first are written while the next one is measured only if they are streamed.
bool should_stream(const OpCall& call, std::size_t elements, bool measures_rows) {
  const int arrays = arrays_of(call);
  const std::size_t threshold = streaming_threshold();
  constexpr std::size_t kLargestItem = 8;
  if (elements * kLargestItem * kMaxArrays < threshold) return false;
  std::size_t bytes = 0;
  for (int k = 0; k < arrays; ++k) {
    if (!call.array[k]) continue;
    const bool is_rows = k >= call.inputs ? !is_sum(call, k) : call.kind[k] == ParameterKind::kRows;
    bytes += (is_rows ? elements : call.array[k]->size()) * call.array[k]->item_size();
  }
  if (bytes < (measures_rows ? threshold : threshold + threshold / 2)) return false;
  for (int k = 0; k < call.inputs; ++k)
    for (int i = call.inputs; i < arrays; ++i)
      if (call.array[k] && call.array[k]->data == call.array[i]->data) return false;
  return true;
}

}  // namespace

void throw_unavailable(const Op& op, const std::string& reason) {
  throw UnavailableError(text(op.name, ": tensor_ops_cpp is unavailable: ", reason));
}

void write_empty_sums(const OpCall& call) {
  for (int k = call.inputs; k < arrays_of(call); ++k) {
    if (!is_sum(call, k)) continue;
    const ArrayView& array = *call.array[k];
    for (std::ptrdiff_t i = 0; i < array.row_length(); ++i)
      std::memset(array.data + i * array.strides[0], 0, array.item_size());
  }
}

ReadyCall::ReadyCall(const OpCall& call, int threads)
    : op_(*call.op),
      elements_(call.array[0]->size()),
      kernel_(kernels_of(op_).variant[call.variant].of[mixture_of(call)][call.array[0]->dtype]),
      scalars_(call.scalars) {
  const double cost =
      kernels_of(op_).cost.of[call.array[0]->dtype] * static_cast<double>(elements_);
  threads_ = threads ? sensible_threads(threads) : threads_for(cost);
  streams_ = should_stream(call, elements_, kernel_.steps->count > 1);
  is_contiguous_ = threads_ == 1 && !kernel_.write_totals && find_contiguous_rows(call);
  if (!is_contiguous_) make_plan(call);
}

bool ReadyCall::find_contiguous_rows(const OpCall& call) {
  rows_.n = op_.walk == Walk::kElements ? elements_
                                        : static_cast<std::size_t>(call.array[0]->row_length());
  rows_.rows = elements_ / rows_.n;
  const int arrays = arrays_of(call);
  for (int k = 0; k < arrays; ++k) {
    rows_.data[k] = nullptr;
    rows_.stride[k] = 0;
    if (!call.array[k]) continue;
    const ArrayView& array = *call.array[k];
    const std::size_t item = array.item_size();
    rows_.data[k] = array.data;
    if (!array.is_contiguous || reinterpret_cast<std::uintptr_t>(array.data) % item != 0)
      return false;
    if (k >= call.inputs || call.kind[k] == ParameterKind::kRows)
      rows_.stride[k] = static_cast<std::ptrdiff_t>(rows_.n * item);
    else if (call.kind[k] == ParameterKind::kHalfRows && !find_half_rows(array, rows_.stride[k]))
      return false;
  }
  return true;
}

// Bytes from one row of an array with half of x's last axis to the next.
bool ReadyCall::find_half_rows(const ArrayView& array, std::ptrdiff_t& stride) const {
  const std::size_t half = rows_.n / 2;
  if (array.dims == 0 || static_cast<std::size_t>(array.row_length()) != half) return false;
  const std::size_t rows = array.size() / half;
  if (rows == rows_.rows) stride = static_cast<std::ptrdiff_t>(half * array.item_size());
  return rows == rows_.rows || rows == 1;
}

void ReadyCall::make_plan(const OpCall& call) {
  const ArrayView& x = *call.array[0];
  plan_.walk = op_.walk;
  plan_.operands = arrays_of(call);
  plan_.streams = streams_;
  plan_.dims = std::max(0, x.dims - 1);
  plan_.n = x.dims ? static_cast<std::size_t>(x.shape[plan_.dims]) : 1;
  plan_.rows = elements_ / plan_.n;
  for (int d = 0; d < plan_.dims; ++d) plan_.shape[d] = static_cast<std::size_t>(x.shape[d]);
  make_operands(call, plan_.n, plan_.dims, plan_.operand, plan_.operands);
  for (int k = 0; k < plan_.operands; ++k) plan_.operand[k].is_sum = is_sum(call, k);
  simplify(plan_);
}

void ReadyCall::run() const {
  if (!is_contiguous_) return run_plan();
  const DefaultFloatMode mode;
  kernel_.run({rows_.data, rows_.stride, rows_.rows, rows_.n, scalars_, streams_});
  if (streams_) finish_streaming_stores();
}

// Rows that are not contiguous or not aligned are gathered, which takes memory.
void ReadyCall::run_plan() const {
  for (;;) {
    try {
      if (kernel_.write_totals) return execute_summing(plan_, kernel_, scalars_, threads_);
      if (should_share_rows(plan_, *kernel_.steps, threads_))
        return execute_sharing_rows(plan_, *kernel_.steps, scalars_, threads_);
      return execute(plan_, kernel_.run, scalars_, threads_);
    } catch (const std::bad_alloc&) {
      if (trim_pool() > 0) continue;
      throw MemoryError(text(op_.name, kernel_.write_totals
                                           ? ": no memory for sums over the rows"
                                           : ": no memory to gather the rows of arrays "
                                             "whose rows are not contiguous or not "
                                             "aligned"));
    }
  }
}

}  // namespace tensor_ops
