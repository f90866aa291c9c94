// silu_mul_linear_with_residual: silu_mul(x) W^T + bias + residual.
#include "decode/executor/node.h"
#include "decode/kernels/product_phases.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Gated {
  static constexpr std::size_t bias = decode::SiluMulLinearWithResidualNode::kBias;
  static TENSOR_OPS_INLINE const float* row(const decode::Share& share, std::size_t r,
                                            float* scratch) {
    const std::size_t n = share.product_columns;
    const float* const gate = share.in(0) + r * 2 * n;
    run_op(silu_mul_kernels, 0, {{gate, 0}, {gate + n, 0}, {scratch, 0}}, 1, n);
    return scratch;
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(silu_mul_linear_with_residual, ProductPhases<Gated>::kernels)
