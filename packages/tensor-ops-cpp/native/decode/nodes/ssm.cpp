// ssm: a state space model whose step and inputs depend on the token.
//
// The state of a request is a matrix of head_size by state_size for each head. Threads divide the
// heads, and take the tokens in their order, so that a token has the bits that it has alone: each
// row of a matrix is computed by itself.
#include "decode/executor/node.h"
#include "decode/kernels/softplus.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::SsmNode;

// Rows of a state that stay in a near cache while all tokens are computed on them.
constexpr std::size_t kNearRows = 8;

struct SsmScratch {
  decode::Scratch bytes;
  decode::Piece<float> steps, decays;  // of each token
  explicit SsmScratch(std::size_t tokens) {
    decode::Pieces own;
    steps = own.add<float>(tokens);
    decays = own.add<float>(tokens);
    bytes.own = own.bytes();
  }
};

decode::Scratch scratch_of_ssm(const decode::Share& share) { return SsmScratch(share.rows).bytes; }

void run_ssm(const decode::Share& share) {
  const auto of = share.attributes_as<SsmNode::Attributes>();
  const auto heads = static_cast<std::size_t>(of.num_heads),
             size = static_cast<std::size_t>(of.head_size),
             groups = static_cast<std::size_t>(of.num_groups),
             states = static_cast<std::size_t>(of.state_size);
  const SsmScratch scratch(share.rows);
  float *const steps = scratch.steps.in(share.own), *const decays = scratch.decays.in(share.own);
  const float* const rate = share.parameters[SsmNode::kRate];
  const float* const step_bias = share.parameters[SsmNode::kStepBias];
  const float* const skip = share.parameters[SsmNode::kSkip];
  const std::size_t end = share.end_of(heads);
  for (std::size_t h = share.begin_of(heads); h < end; ++h) {
    const std::size_t group = h / (heads / groups);
    for (std::size_t t = 0; t < share.rows; ++t) {
      steps[t] = softplus(share.in(1)[t * share.input_columns[1] + h] + step_bias[h]);
      decays[t] = __builtin_expf(rate[h] * steps[t]);
    }
    for (std::size_t first = 0; first < size; first += kNearRows) {
      const std::size_t rows = size - first < kNearRows ? size - first : kNearRows;
      const std::size_t place = (h * size + first) * states;
      for (std::size_t t = 0; t < share.rows; ++t) {
        const float* const inputs = share.in(0) + t * share.input_columns[0];
        const float* const x = inputs + h * size + first;
        const float* const b = inputs + heads * size + group * states;
        const float* const c = b + groups * states;
        float* const after = share.state_after(t) + place;
        const float* before = share.state_before(t);
        if (before) {
          before += place;
        } else {
          __builtin_memset(after, 0, rows * states * sizeof(float));
          before = after;
        }
        float* const out = share.out() + t * share.columns + h * size + first;
        for (std::size_t d = 0; d < rows; ++d) {
          const float* const row_before = before + d * states;
          float* const row = after + d * states;
          const float decay = decays[t], scaled = steps[t] * x[d];
          float sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::size_t n = 0; n < states; ++n) {
            row[n] = row_before[n] * decay + scaled * b[n];
            sum += row[n] * c[n];
          }
          out[d] = sum + skip[h] * x[d];
        }
      }
    }
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(ssm, run_ssm, nullptr, true, scratch_of_ssm)
