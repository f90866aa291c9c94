// silu_mul: silu of the first half of a row times its second half.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_silu_mul(const decode::Share& share) {
  const std::size_t n = share.columns, begin = share.begin_of(share.rows);
  const float* const gate = share.in(0) + begin * 2 * n;
  run_op(silu_mul_kernels, 0, {{gate, 2 * n}, {gate + n, 2 * n}, {share.out() + begin * n, n}},
         share.end_of(share.rows) - begin, n);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(silu_mul, run_silu_mul)
