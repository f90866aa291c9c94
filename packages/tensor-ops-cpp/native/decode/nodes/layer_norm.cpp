// layer_norm: (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::LayerNormNode;

void run_layer_norm(const decode::Share& share) {
  const std::size_t n = share.columns, begin = share.begin_of(share.rows);
  run_op(layer_norm_kernels, 0,
         {{share.in(0) + begin * n, n},
          {share.parameters[LayerNormNode::kWeight], 0},
          {share.parameters[LayerNormNode::kBias], 0},
          {share.out() + begin * n, n}},
         share.end_of(share.rows) - begin, n, share.attributes_as<LayerNormNode::Attributes>().eps);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(layer_norm, run_layer_norm)
