// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::RmsNormNode;

void run_rms_norm(const decode::Share& share) {
  const std::size_t n = share.columns, begin = share.begin_of(share.rows);
  run_op(rms_norm_kernels, 0,
         {{share.in(0) + begin * n, n},
          {share.parameters[RmsNormNode::kWeight], 0},
          {share.out() + begin * n, n}},
         share.end_of(share.rows) - begin, n, share.attributes_as<RmsNormNode::Attributes>().eps);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(rms_norm, run_rms_norm)
