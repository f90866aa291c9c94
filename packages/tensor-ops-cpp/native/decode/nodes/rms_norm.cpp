// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::RmsNormNode;

void rms_norm_row(const decode::Share& share, std::size_t r, float* to) {
  const std::size_t n = share.columns;
  run_op(rms_norm_kernels, 0,
         {{share.in(0) + r * n, 0}, {share.parameters[RmsNormNode::kWeight], 0}, {to, 0}}, 1, n,
         share.attributes_as<RmsNormNode::Attributes>().eps);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE_BY_ROWS(rms_norm, rms_norm_row)
