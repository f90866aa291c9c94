// gated_group_norm: rms_norm of each group of columns that a gate has multiplied.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GatedGroupNormNode;

// Pairs of a token and a group are divided among the threads.
void run_gated_group_norm(const decode::Share& share) {
  const auto of = share.attributes_as<GatedGroupNormNode::Attributes>();
  const auto size = static_cast<std::size_t>(of.group_size);
  const float* const weight = share.parameters[GatedGroupNormNode::kWeight];
  const std::size_t groups = share.columns / size, pairs = share.rows * groups;
  for (std::size_t p = share.begin_of(pairs); p < share.end_of(pairs); ++p) {
    float* const out = share.out() + p * size;
    run_op(silu_mul_kernels, 0,
           {{share.in(1) + p * size, 0}, {share.in(0) + p * size, 0}, {out, 0}}, 1, size);
    run_op(rms_norm_kernels, 0, {{out, 0}, {weight + p % groups * size, 0}, {out, 0}}, 1, size,
           of.eps);
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(gated_group_norm, run_gated_group_norm)
