// attention: each query head of a token attends to the keys of its request up to its own position.
#include "decode/executor/node.h"
#include "decode/kernels/attention_of_step.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void store_all(const Share& share) {
  for_type(share, [&](auto element) {
    using Of = Attention<decltype(element)>;
    Of::begin(share);
    Of::store_all(share);
  });
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(attention, store_all, attend_all, true, scratch_of_attention)
