// gated_short_conv: a causal convolution over the last tokens of a request, between two gates.
#include "decode/executor/node.h"
#include "decode/kernels/short_convolution.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GatedShortConvNode;

void run_gated_short_conv(const decode::Share& share) {
  const auto of = share.attributes_as<GatedShortConvNode::Attributes>();
  const float* const bias = share.parameters[GatedShortConvNode::kBias];
  const ShortConvolution convolution(share, static_cast<std::size_t>(of.kept),
                                     share.parameters[GatedShortConvNode::kWeight]);
  for (std::size_t t = 0; t < share.rows; ++t) {
    const float* const before = share.in(0) + t * share.input_columns[0];
    const float *const after = before + share.columns, *const x = after + share.columns;
    float* const out = share.out() + t * share.columns;
    convolution.run(
        t, [&](std::size_t i) TENSOR_OPS_INLINE_LAMBDA { return before[i] * x[i]; },
        [&](std::size_t i, float sum)
            TENSOR_OPS_INLINE_LAMBDA { out[i] = after[i] * (bias ? sum + bias[i] : sum); });
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(gated_short_conv, run_gated_short_conv)
