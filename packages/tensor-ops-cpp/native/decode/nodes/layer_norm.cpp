// layer_norm: (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::LayerNormNode;

void layer_norm_row(const decode::Share& share, std::size_t r, float* to) {
  const std::size_t n = share.columns;
  run_op(layer_norm_kernels, 0,
         {{share.in(0) + r * n, 0},
          {share.parameters[LayerNormNode::kWeight], 0},
          {share.parameters[LayerNormNode::kBias], 0},
          {to, 0}},
         1, n, share.attributes_as<LayerNormNode::Attributes>().eps);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE_BY_ROWS(layer_norm, layer_norm_row)
