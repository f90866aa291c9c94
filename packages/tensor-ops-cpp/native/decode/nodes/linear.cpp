// linear: x W^T + bias + residual.
#include "decode/executor/node.h"
#include "decode/kernels/product_phases.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct AsGiven {
  static constexpr std::size_t bias = decode::LinearNode::kBias;
  static TENSOR_OPS_INLINE const float* row(const decode::Share& share, std::size_t r, float*) {
    return share.in(0) + r * share.input_columns[0];
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(linear, ProductPhases<AsGiven>::kernels)
