// ssm: a state space model whose step and inputs depend on the token.
//
// The state of a request is a matrix of head_size by state_size for each head. Threads divide the
// heads, and take the tokens in their order, so that a token has the bits that it has alone.
#include "decode/executor/node.h"
#include "decode/kernels/softplus.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::SsmNode;

void run_ssm(const decode::Share& share) {
  const auto of = share.attributes_as<SsmNode::Attributes>();
  const auto heads = static_cast<std::size_t>(of.num_heads),
             size = static_cast<std::size_t>(of.head_size),
             groups = static_cast<std::size_t>(of.num_groups),
             states = static_cast<std::size_t>(of.state_size);
  const float* const rate = share.parameters[SsmNode::kRate];
  const float* const step_bias = share.parameters[SsmNode::kStepBias];
  const float* const skip = share.parameters[SsmNode::kSkip];
  const std::size_t end = share.end_of(heads);
  for (std::size_t h = share.begin_of(heads); h < end; ++h) {
    const std::size_t group = h / (heads / groups);
    for (std::size_t t = 0; t < share.rows; ++t) {
      const float* const x = share.in(0) + t * share.input_columns[0];
      const float* const b = x + heads * size + group * states;
      const float* const c = b + groups * states;
      const float step = softplus(share.in(1)[t * share.input_columns[1] + h] + step_bias[h]);
      const float decay = __builtin_expf(rate[h] * step);
      float* const state = share.state_after(t) + h * size * states;
      const float* before = share.state_before(t);
      if (before) {
        before += h * size * states;
      } else {
        __builtin_memset(state, 0, size * states * sizeof(float));
        before = state;
      }
      float* const out = share.out() + t * share.columns + h * size;
      for (std::size_t d = 0; d < size; ++d) {
        const float* const row_before = before + d * states;
        float* const row = state + d * states;
        const float input = x[h * size + d], scaled = step * input;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::size_t n = 0; n < states; ++n) {
          row[n] = row_before[n] * decay + scaled * b[n];
          sum += row[n] * c[n];
        }
        out[d] = sum + skip[h] * input;
      }
    }
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(ssm, run_ssm, nullptr, true)
