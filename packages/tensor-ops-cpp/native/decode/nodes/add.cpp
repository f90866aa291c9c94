// add: a + b.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_add(const decode::Share& share) {
  const std::size_t count = share.rows * share.columns, end = share.end_of(count);
  const float *a = share.in(0), *b = share.in(1);
  float* const y = share.out();
#pragma omp simd
  for (std::size_t i = share.begin_of(count); i < end; ++i) y[i] = a[i] + b[i];
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(add, run_add)
