// sample: a token drawn from the distribution of the logits.
#include "decode/executor/node.h"
#include "decode/kernels/argmax.h"
#include "decode/serving/draw.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_sample(const decode::Share& share) {
  auto* const y = static_cast<std::int32_t*>(share.output);
  const decode::Step& step = *share.step;
  const std::size_t n = share.input_columns[0], end = share.end_of(share.rows);
  for (std::size_t r = share.begin_of(share.rows); r < end; ++r) {
    const std::size_t token = share.is_selected ? static_cast<std::size_t>(step.selected[r]) : r;
    y[r] = decode::sample(step, share.in(0) + r * n, n, token, share.own, argmax);
  }
}

decode::Scratch scratch_of_sample(const decode::Share& share) {
  return {decode::draw_scratch(share.input_columns[0]), 0};
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(sample, run_sample, nullptr, true, scratch_of_sample)
