// swiglu_clamped: a gate times its sigmoid, and values plus one, all of them clamped.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// silu(alpha * g) / alpha is g * sigmoid(alpha * g): what silu_mul computes of alpha * g and
// (up + 1) / alpha.
void swiglu_clamped_row(const decode::Share& share, std::size_t r, float* to) {
  const auto of = share.attributes_as<decode::SwigluClampedNode::Attributes>();
  const auto limit = static_cast<float>(of.limit), alpha = static_cast<float>(of.alpha);
  const std::size_t n = share.columns;
  const float* const gate = share.in(0) + r * 2 * n;
  constexpr std::size_t kPiece = 256;
  float scaled[kPiece], values[kPiece];
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t count = n - begin < kPiece ? n - begin : kPiece;
    const float* const g = gate + begin;
    const float* const up = g + n;
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) {
      const float clamped = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
      scaled[i] = alpha * (g[i] > limit ? limit : g[i]);
      values[i] = (clamped + 1) / alpha;
    }
    run_op(silu_mul_kernels, 0, {{scaled, 0}, {values, 0}, {to + begin, 0}}, 1, count);
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE_BY_ROWS(swiglu_clamped, swiglu_clamped_row)
