// route: the experts with the largest scores, and the weights of what they give.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using RouteAttributes = decode::RouteNode::Attributes;

struct RouteScratch {
  decode::Piece<float> scores, ranks, groups;
  decode::Piece<std::int32_t> used_groups;
  decode::Piece<unsigned char> is_taken;
  std::size_t bytes;

  explicit TENSOR_OPS_INLINE RouteScratch(const decode::Share& share) {
    const std::size_t experts = share.input_columns[0];
    decode::Pieces own;
    scores = own.add<float>(experts);
    ranks = own.add<float>(experts);
    groups = own.add<float>(experts);
    used_groups = own.add<std::int32_t>(experts);
    is_taken = own.add<unsigned char>(experts);
    bytes = own.bytes();
  }
};

decode::Scratch scratch_of_route(const decode::Share& share) {
  return {RouteScratch(share).bytes, 0};
}

// NaN counts as the largest number.
TENSOR_OPS_INLINE float rank_of(float x) { return x == x ? x : __builtin_inff(); }

// Takes the largest of n numbers, the first of equals first.
void take_largest(const float* x, std::size_t n, std::size_t count, unsigned char* is_taken,
                  std::int32_t* found) {
  __builtin_memset(is_taken, 0, n);
  for (std::size_t k = 0; k < count; ++k) {
    std::size_t best = 0;
    while (is_taken[best]) ++best;
    for (std::size_t i = best + 1; i < n; ++i)
      if (x[i] > x[best] && !is_taken[i]) best = i;
    is_taken[best] = 1;
    found[k] = static_cast<std::int32_t>(best);
  }
}

float sum_of_best_two(const float* ranks, std::size_t n) {
  if (n == 1) return ranks[0];
  float best = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
  float second = ranks[0] > ranks[1] ? ranks[1] : ranks[0];
  for (std::size_t i = 2; i < n; ++i) {
    if (ranks[i] > second) second = ranks[i] > best ? best : ranks[i];
    if (ranks[i] > best) best = ranks[i];
  }
  return rank_of(best + second);
}

float best_of(const float* ranks, std::size_t n) {
  float best = ranks[0];
  for (std::size_t i = 1; i < n; ++i) best = ranks[i] > best ? ranks[i] : best;
  return best;
}

// Gives the experts outside the groups that are used the lowest rank.
void leave_out_groups(float* ranks, std::size_t experts, const RouteAttributes& of,
                      const RouteScratch& scratch, unsigned char* own) {
  const auto groups = static_cast<std::size_t>(of.groups);
  const std::size_t size = experts / groups;
  float* const sums = scratch.groups.in(own);
  unsigned char* const is_taken = scratch.is_taken.in(own);
  const bool is_best = of.group_score == decode::RouteNode::GroupScore::kBest;
  for (std::size_t g = 0; g < groups; ++g)
    sums[g] = is_best ? best_of(ranks + g * size, size) : sum_of_best_two(ranks + g * size, size);
  take_largest(sums, groups, static_cast<std::size_t>(of.used_groups), is_taken,
               scratch.used_groups.in(own));
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t i = 0; i < size && !is_taken[g]; ++i) ranks[g * size + i] = -__builtin_inff();
}

void softmax(const float* x, float* to, std::size_t n) {
  run_op(softmax_kernels, 0, {{x, 0}, {to, 0}}, 1, n, 1.0);
}

void run_route(const decode::Share& share) {
  const auto of = share.attributes_as<RouteAttributes>();
  const std::size_t experts = share.input_columns[0], count = share.columns;
  const RouteScratch scratch(share);
  float* const scores = scratch.scores.in(share.own);
  float* const ranks = scratch.ranks.in(share.own);
  const float* const bias = share.parameters[decode::RouteNode::kBias];
  const std::size_t end = share.end_of(share.rows);
  for (std::size_t r = share.begin_of(share.rows); r < end; ++r) {
    const float* const logits = share.in(0) + r * experts;
    float* const weights = share.out() + r * count;
    auto* const chosen = static_cast<std::int32_t*>(share.second_output) + r * count;
    if (of.scoring == decode::RouteNode::Scoring::kSoftmax)
      softmax(logits, scores, experts);
    else
      for (std::size_t e = 0; e < experts; ++e)
        scores[e] = of.scoring == decode::RouteNode::Scoring::kSigmoid
                        ? 1 / (1 + __builtin_expf(-logits[e]))
                        : logits[e];
    for (std::size_t e = 0; e < experts; ++e)
      ranks[e] = rank_of(bias ? scores[e] + bias[e] : logits[e]);
    if (of.used_groups < of.groups) leave_out_groups(ranks, experts, of, scratch, share.own);
    take_largest(ranks, experts, count, scratch.is_taken.in(share.own), chosen);
    for (std::size_t k = 0; k < count; ++k) weights[k] = scores[chosen[k]];
    if (of.scoring == decode::RouteNode::Scoring::kSoftmaxOfChosen)
      softmax(weights, weights, count);
    float sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += weights[k];
    const bool is_divided = of.normalise == decode::RouteNode::Normalise::kSum;
    const float divisor = is_divided ? sum + static_cast<float>(of.eps) : 1;
    for (std::size_t k = 0; k < count; ++k)
      weights[k] = weights[k] / divisor * static_cast<float>(of.scale);
    if (const float* const scale = share.parameters[decode::RouteNode::kExpertScale])
      for (std::size_t k = 0; k < count; ++k) weights[k] *= scale[chosen[k]];
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(route, run_route, nullptr, true, scratch_of_route)
