// scaled_linear: factor * x W^T + bias.
#include "decode/executor/node.h"
#include "decode/kernels/product_phases.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Scaled {
  static constexpr std::size_t bias = decode::ScaledLinearNode::kBias;
  static constexpr bool are_results = false;
  static TENSOR_OPS_INLINE float result(const decode::Share& share, float sum) {
    return static_cast<float>(share.attributes_as<decode::ScaledLinearNode::Attributes>().factor) *
           sum;
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(scaled_linear, ProductPhases<Scaled>::kernels)
