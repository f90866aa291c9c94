// gelu_mul_part: gelu of a value times one of the parts of another.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GeluMulPartNode;

void run_gelu_mul_part(const decode::Share& share) {
  const auto of = share.attributes_as<GeluMulPartNode::Attributes>();
  const std::size_t n = share.columns, all = share.input_columns[GeluMulPartNode::kX];
  const std::size_t first = (static_cast<std::size_t>(of.part) - 1) * n;
  const std::size_t begin = share.begin_of(share.rows), end = share.end_of(share.rows);
  if (begin == end) return;
  run_op(gelu_mul_kernels, of.approximate == GeluMulPartNode::Approximate::kTanh ? 0 : 1,
         {{share.in(GeluMulPartNode::kGate) + begin * n, n},
          {share.in(GeluMulPartNode::kX) + begin * all + first, all},
          {share.out() + begin * n, n}},
         end - begin, n);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(gelu_mul_part, run_gelu_mul_part)
