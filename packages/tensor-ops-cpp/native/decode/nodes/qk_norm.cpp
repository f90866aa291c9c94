// qk_norm: rms_norm of queries and of keys, each of all heads together; values as they are.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::QkNormNode;

void qk_norm_row(const decode::Share& share, std::size_t r, float* to) {
  const float* x = share.in(0) + r * share.columns;
  const float* const end = x + share.columns;
  const double eps = share.attributes_as<QkNormNode::Attributes>().eps;
  for (const std::size_t norm : {QkNormNode::kQNorm, QkNormNode::kKNorm}) {
    const std::size_t n = share.parameter_columns[norm];
    run_op(rms_norm_kernels, 0, {{x, 0}, {share.parameters[norm], 0}, {to, 0}}, 1, n, eps);
    x += n;
    to += n;
  }
  __builtin_memcpy(to, x, static_cast<std::size_t>(end - x) * sizeof(float));
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE_BY_ROWS(qk_norm, qk_norm_row)
