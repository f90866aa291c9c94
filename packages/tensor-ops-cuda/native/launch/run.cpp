#include "launch/run.h"

#include <algorithm>

#include "declaration/operand_axes.h"
#include "launch/area.h"
#include "launch/memory.h"

namespace tensor_ops {
namespace {

// An operand of the same elements, each once and one after another, at `data`.
Operand packed(const Problem& problem, const Operand& operand, void* data) {
  Operand result = operand;
  result.data = static_cast<char*>(data);
  result.element_stride = operand.item_size();
  std::int64_t step = operand.length * operand.item_size();
  for (int d = problem.axes - 1; d >= 0; --d) {
    result.stride[d] = repeats(problem, operand, d) ? 0 : step;
    if (result.stride[d]) step *= problem.extent[d];
  }
  return result;
}

// Operands in memory of their own while a call is enqueued.
struct Gathered {
  StridedArea area[kMaxArrays];
  DeviceMemory memory[kMaxArrays];
};

void gather(Problem& problem, int k, Gathered& gathered, cudaStream_t stream) {
  Operand& operand = problem.operand[k];
  gathered.area[k] = area_of(problem, operand, whole(problem));
  gathered.memory[k] =
      new_device_memory(static_cast<std::size_t>(gathered.area[k].bytes()), stream);
  operand = packed(problem, operand, gathered.memory[k].get());
  if (!operand.is_output) gather_area(gathered.area[k], operand.data, stream);
}

// More axes than kernels take: what is packed has one.
void gather_all(Problem& problem, Gathered& gathered, cudaStream_t stream) {
  for (int k = 0; k < problem.operands; ++k)
    if (problem.operand[k].data && !gathered.memory[k].get()) gather(problem, k, gathered, stream);
  collapse(problem);
}

Call new_call(const Problem& problem, const DeviceFacts& device, cudaStream_t stream) {
  Call call{problem.dtype, {}, problem.variant, {}, {}, {}, problem.n, device, stream};
  std::copy_n(problem.scalar, kMaxScalars, call.scalar);
  call.rows.count = problem.rows();
  call.rows.axes = std::max(1, problem.axes);
  call.rows.extent[0] = 1;
  std::copy_n(problem.extent, problem.axes, call.rows.extent);
  for (int k = 0; k < problem.operands; ++k) {
    const Operand& operand = problem.operand[k];
    call.array[k] = operand.data;
    call.array_dtype[k] = operand.dtype;
    call.rows.stride[k][0] = 0;
    for (int d = 0; d < problem.axes; ++d)
      call.rows.stride[k][d] = operand.data ? operand.stride[d] / operand.item_size() : 0;
  }
  return call;
}

}  // namespace

void run_on_device(const Problem& given, const DeviceFacts& device, cudaStream_t stream) {
  Problem problem = given;
  collapse(problem);
  Gathered gathered;
  for (int k = 0; k < problem.operands; ++k)
    if (problem.operand[k].data && !is_direct(problem.operand[k], problem.axes))
      gather(problem, k, gathered, stream);
  collapse(problem);
  if (problem.axes > kMaxAxes) gather_all(problem, gathered, stream);
  problem.op->launch(new_call(problem, device, stream));
  for (int k = 0; k < problem.operands; ++k)
    if (problem.operand[k].is_output && gathered.memory[k].get())
      scatter_area(gathered.memory[k].get(), gathered.area[k], stream);
}

}  // namespace tensor_ops
