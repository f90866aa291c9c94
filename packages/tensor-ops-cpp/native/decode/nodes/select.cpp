// select: the rows of the tokens that are selected.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_select(const decode::Share& share) {
  const std::size_t n = share.columns, end = share.end_of(share.rows);
  for (std::size_t r = share.begin_of(share.rows); r < end; ++r)
    __builtin_memcpy(share.out() + r * n,
                     share.in(0) + static_cast<std::size_t>(share.step->selected[r]) * n,
                     n * sizeof(float));
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(select, run_select)
