// shared_attention: attention to the keys and values that another node has stored in this step, and
// in those before. All threads have met since then, between the phases of that node.
#include "decode/executor/node.h"
#include "decode/kernels/attention_of_step.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using decode::SharedAttentionNode;

static_assert(sizeof(SharedAttentionNode::Attributes) == sizeof(AttentionNode::Attributes));
static_assert(std::size_t{SharedAttentionNode::kCos} == AttentionNode::kCos);
static_assert(std::size_t{SharedAttentionNode::kSin} == AttentionNode::kSin);
static_assert(std::size_t{SharedAttentionNode::kQNorm} == AttentionNode::kQNorm);
static_assert(std::size_t{SharedAttentionNode::kQueryScale} == AttentionNode::kQueryScale);
static_assert(std::size_t{SharedAttentionNode::kSinks} == AttentionNode::kSinks);

void begin_shared(const Share& share) {
  for_type(share, [&](auto element) { Attention<decltype(element)>::begin(share); });
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(shared_attention, begin_shared, attend_all, true, scratch_of_attention)
