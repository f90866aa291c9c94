// silu_mul: silu of the first half of a row times its second half.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void silu_mul_row(const decode::Share& share, std::size_t r, float* to) {
  const std::size_t n = share.columns;
  const float* const gate = share.in(0) + r * 2 * n;
  run_op(silu_mul_kernels, 0, {{gate, 0}, {gate + n, 0}, {to, 0}}, 1, n);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE_BY_ROWS(silu_mul, silu_mul_row)
