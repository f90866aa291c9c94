// group_rms_norm: rms_norm of each group of columns, by one weight.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GroupRmsNormNode;

// Pairs of a token and a group are divided among the threads.
void run_group_rms_norm(const decode::Share& share) {
  const auto of = share.attributes_as<GroupRmsNormNode::Attributes>();
  const float* const weight = share.parameters[GroupRmsNormNode::kWeight];
  const std::size_t size = share.parameter_columns[GroupRmsNormNode::kWeight];
  const std::size_t pairs = share.rows * (share.columns / size);
  const std::size_t begin = share.begin_of(pairs), end = share.end_of(pairs);
  if (begin == end) return;
  run_op(rms_norm_kernels, 0,
         {{share.in(0) + begin * size, size}, {weight, 0}, {share.out() + begin * size, size}},
         end - begin, size, of.eps);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(group_rms_norm, run_group_rms_norm)
