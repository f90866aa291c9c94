// short_conv: a causal convolution over the last tokens of a request.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"
#include "decode/kernels/short_convolution.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

extern const KernelTable silu_kernels;

namespace {

using decode::ShortConvNode;

void run_short_conv(const decode::Share& share) {
  const auto of = share.attributes_as<ShortConvNode::Attributes>();
  const float* const bias = share.parameters[ShortConvNode::kBias];
  const ShortConvolution convolution(share, static_cast<std::size_t>(of.kept),
                                     share.parameters[ShortConvNode::kWeight]);
  const std::size_t begin = convolution.begin, end = convolution.end;
  if (begin == end) return;
  for (std::size_t t = 0; t < share.rows; ++t) {
    const float* const x = share.in(0) + t * share.columns;
    float* const out = share.out() + t * share.columns;
    convolution.run(
        t, [&](std::size_t i) TENSOR_OPS_INLINE_LAMBDA { return x[i]; },
        [&](std::size_t i, float sum)
            TENSOR_OPS_INLINE_LAMBDA { out[i] = bias ? sum + bias[i] : sum; });
    if (of.activation == ShortConvNode::Activation::kSilu)
      run_op(silu_kernels, 0, {{out + begin, 0}, {out + begin, 0}}, 1, end - begin);
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(short_conv, run_short_conv)
