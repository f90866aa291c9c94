// argmax: the index of the largest number of a row, the first one of equals; -1 if there is none.
#include "decode/kernels/argmax.h"

#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_argmax(const decode::Share& share) {
  auto* const y = static_cast<std::int32_t*>(share.output);
  const std::size_t end = share.end_of(share.rows), n = share.input_columns[0];
  for (std::size_t r = share.begin_of(share.rows); r < end; ++r)
    y[r] = argmax(share.in(0) + r * n, n);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(argmax, run_argmax)
