// gelu_mul: gelu of the first half of a row times its second half.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GeluMulNode;

void gelu_mul_row(const decode::Share& share, std::size_t r, float* to) {
  const std::size_t n = share.columns;
  const float* const gate = share.in(0) + r * 2 * n;
  const auto approximate = share.attributes_as<GeluMulNode::Attributes>().approximate;
  run_op(gelu_mul_kernels, approximate == GeluMulNode::Approximate::kTanh ? 0 : 1,
         {{gate, 0}, {gate + n, 0}, {to, 0}}, 1, n);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE_BY_ROWS(gelu_mul, gelu_mul_row)
