// gated_norm: rms_norm of each head, times silu of a gate.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GatedNormNode;

// Pairs of a token and a head are divided among the threads.
void run_gated_norm(const decode::Share& share) {
  const std::size_t size = share.parameter_columns[GatedNormNode::kWeight];
  const std::size_t pairs = share.rows * share.columns / size;
  const std::size_t begin = share.begin_of(pairs), count = share.end_of(pairs) - begin;
  if (count == 0) return;
  const double eps = share.attributes_as<GatedNormNode::Attributes>().eps;
  float* const out = share.out() + begin * size;
  const float* const gate = share.in(1) + begin * size;
  run_op(rms_norm_kernels, 0,
         {{share.in(0) + begin * size, size},
          {share.parameters[GatedNormNode::kWeight], 0},
          {out, size}},
         count, size, eps);
  run_op(silu_mul_kernels, 0, {{gate, size}, {out, size}, {out, size}}, count, size);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(gated_norm, run_gated_norm)
