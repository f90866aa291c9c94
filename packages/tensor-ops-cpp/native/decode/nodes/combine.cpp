// combine: the weighted sum of what the chosen experts give.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Threads divide the columns, since one token has no more than one row.
void run_combine(const decode::Share& share) {
  const std::size_t n = share.columns, parts = share.input_columns[0];
  const std::size_t begin = share.begin_of(n), end = share.end_of(n);
  for (std::size_t r = 0; r < share.rows; ++r) {
    const float* const weights = share.in(0) + r * parts;
    float* const y = share.out() + r * n;
    for (std::size_t p = 0; p < parts; ++p) {
      const float weight = weights[p];
      const float* const x = share.in(1) + (r * parts + p) * n;
      if (p == 0)
#pragma omp simd
        for (std::size_t i = begin; i < end; ++i) y[i] = weight * x[i];
      else
#pragma omp simd
        for (std::size_t i = begin; i < end; ++i) y[i] += weight * x[i];
    }
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(combine, run_combine)
