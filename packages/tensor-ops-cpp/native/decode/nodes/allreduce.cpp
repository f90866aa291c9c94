// allreduce: the sum over all ranks; here there is one.
#include "decode/executor/node.h"
#include "decode/kernels/op_rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run(const decode::Share& share) {
  const std::size_t count = share.rows * share.columns, begin = share.begin_of(count);
  __builtin_memcpy(share.out() + begin, share.in(0) + begin,
                   (share.end_of(count) - begin) * sizeof(float));
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(allreduce, run)
