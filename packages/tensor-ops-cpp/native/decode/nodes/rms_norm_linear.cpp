// rms_norm_linear: rms_norm(x) W^T + bias.
#include "decode/executor/node.h"
#include "decode/kernels/product_phases.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::RmsNormLinearNode;

struct Normalised {
  static constexpr std::size_t bias = RmsNormLinearNode::kBias;
  static TENSOR_OPS_INLINE const float* row(const decode::Share& share, std::size_t r,
                                            float* scratch) {
    const std::size_t n = share.input_columns[0];
    run_op(
        rms_norm_kernels, 0,
        {{share.in(0) + r * n, 0}, {share.parameters[RmsNormLinearNode::kNorm], 0}, {scratch, 0}},
        1, n, share.attributes_as<RmsNormLinearNode::Attributes>().eps);
    return scratch;
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(rms_norm_linear, ProductPhases<Normalised>::kernels)
