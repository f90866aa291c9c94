// allgather: the columns of all ranks, side by side.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Ranks may differ by one column: each sends rows of as many as any of them has.
std::size_t sent_columns(const decode::Share& share) {
  return (share.columns + share.num_ranks - 1) / share.num_ranks;
}

void send_columns(const decode::Share& share) {
  const std::size_t n = share.input_columns[0], begin = share.begin_of(n), end = share.end_of(n);
  float* const to = share.num_ranks > 1 ? share.exchanged.sent : share.out();
  for (std::size_t r = 0; r < share.rows; ++r)
    __builtin_memcpy(to + r * sent_columns(share) + begin, share.in(0) + r * n + begin,
                     (end - begin) * sizeof(float));
}

void place_columns(const decode::Share& share) {
  const std::size_t n = share.columns, ranks = share.num_ranks;
  const std::size_t begin = share.begin_of(n), end = share.end_of(n);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t first = n * rank / ranks, last = n * (rank + 1) / ranks;
    const std::size_t from = begin > first ? begin : first, to = end < last ? end : last;
    if (from >= to) continue;
    const float* const received = share.exchanged.received + rank * share.exchanged.stride;
    for (std::size_t r = 0; r < share.rows; ++r)
      __builtin_memcpy(share.out() + r * n + from,
                       received + r * sent_columns(share) + (from - first),
                       (to - from) * sizeof(float));
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(allgather, send_columns, place_columns)
