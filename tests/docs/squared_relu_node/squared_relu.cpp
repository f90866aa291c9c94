// squared_relu: max(x, 0)^2.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run(const decode::Share& share) {
  const std::size_t count = share.rows * share.columns, end = share.end_of(count);
  const float* const x = share.in(0);
  float* const y = share.out();
#pragma omp simd
  for (std::size_t i = share.begin_of(count); i < end; ++i) y[i] = x[i] > 0 ? x[i] * x[i] : 0.0f;
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(squared_relu, run)
