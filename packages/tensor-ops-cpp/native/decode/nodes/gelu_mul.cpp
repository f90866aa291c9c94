// gelu_mul: gelu of the first half of a row times its second half.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GeluMulNode;

void run_gelu_mul(const decode::Share& share) {
  const std::size_t n = share.columns, begin = share.begin_of(share.rows);
  const float* const gate = share.in(0) + begin * 2 * n;
  const auto approximate = share.attributes_as<GeluMulNode::Attributes>().approximate;
  run_op(gelu_mul_kernels, approximate == GeluMulNode::Approximate::kTanh ? 0 : 1,
         {{gate, 2 * n}, {gate + n, 2 * n}, {share.out() + begin * n, n}},
         share.end_of(share.rows) - begin, n);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(gelu_mul, run_gelu_mul)
