// sigmoid_mul: x * sigmoid(gate).
#include "decode/executor/node.h"
#include "decode/kernels/sigmoid_of.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_sigmoid_mul(const decode::Share& share) {
  const std::size_t count = share.rows * share.columns, end = share.end_of(count);
  const float *const x = share.in(0), *const gate = share.in(1);
  float* const y = share.out();
#pragma omp simd
  for (std::size_t i = share.begin_of(count); i < end; ++i) y[i] = x[i] * sigmoid(gate[i]);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(sigmoid_mul, run_sigmoid_mul)
