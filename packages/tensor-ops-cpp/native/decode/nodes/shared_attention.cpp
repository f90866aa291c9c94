// shared_attention: attention to the keys and values that another node has stored in this step, and
// in those before. All threads have met since then, between the phases of that node.
#include "decode/executor/node.h"
#include "decode/kernels/attention_of_step.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

static_assert(sizeof(decode::SharedAttentionNode::Attributes) == sizeof(AttentionNode::Attributes));

void begin_shared(const Share& share) {
  for_type(share, [&](auto element) {
    Attention<decltype(element), decode::SharedAttentionNode>::begin(share);
  });
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(shared_attention, begin_shared, attend_all<decode::SharedAttentionNode>, true,
            scratch_of_attention<decode::SharedAttentionNode>)
