// gated_short_conv: a causal convolution over the last tokens of a request, between two gates.
//
// The state of a request has as many rows as tokens are kept, the oldest first. Threads divide the
// columns, and take the tokens in their order, so that a token has the bits that it has alone.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::GatedShortConvNode;

void run_gated_short_conv(const decode::Share& share) {
  const std::size_t columns = share.columns, end = share.end_of(columns);
  const auto kept =
      static_cast<std::size_t>(share.attributes_as<GatedShortConvNode::Attributes>().kept);
  const float* const bias = share.parameters[GatedShortConvNode::kBias];
  for (std::size_t t = 0; t < share.rows; ++t) {
    const float* const before = share.in(0) + t * share.input_columns[0];
    const float *const after = before + columns, *const x = after + columns;
    float* const out = share.out() + t * columns;
    const auto slot = static_cast<std::size_t>(share.step->slots[t]);
    auto* const state = reinterpret_cast<float*>(share.cache.page(slot, 0));
    const bool is_first = share.step->positions[t] == 0;
    for (std::size_t i = share.begin_of(columns); i < end; ++i) {
      const float* const weight = share.parameters[GatedShortConvNode::kWeight] + i * (kept + 1);
      float sum = 0;
      for (std::size_t k = 0; k < kept; ++k) {
        if (is_first) state[k * columns + i] = 0;
        sum += weight[k] * state[k * columns + i];
        if (k > 0) state[(k - 1) * columns + i] = state[k * columns + i];
      }
      const float newest = before[i] * x[i];
      state[(kept - 1) * columns + i] = newest;
      sum += weight[kept] * newest;
      out[i] = after[i] * (bias ? sum + bias[i] : sum);
    }
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(gated_short_conv, run_gated_short_conv)
