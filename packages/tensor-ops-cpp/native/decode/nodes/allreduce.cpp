// allreduce: the sum over all ranks, added in their order.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Sums of this many numbers stay in the cache while rank after rank is added.
constexpr std::size_t kSumsInCache = 2048;

void send_summands(const decode::Share& share) {
  const std::size_t count = share.rows * share.columns, begin = share.begin_of(count);
  float* const to = share.num_ranks > 1 ? share.exchanged.sent : share.out();
  __builtin_memcpy(to + begin, share.in(0) + begin, (share.end_of(count) - begin) * sizeof(float));
}

void add_summands(const decode::Share& share) {
  const std::size_t count = share.rows * share.columns, end = share.end_of(count);
  for (std::size_t first = share.begin_of(count); first < end; first += kSumsInCache) {
    const std::size_t n = first + kSumsInCache < end ? kSumsInCache : end - first;
    float* const sum = share.out() + first;
    const float* const a = share.exchanged.received + first;
    const float* b = a + share.exchanged.stride;
#pragma omp simd
    for (std::size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
    for (std::size_t rank = 2; rank < share.num_ranks; ++rank) {
      b += share.exchanged.stride;
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i) sum[i] += b[i];
    }
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(allreduce, send_summands, add_summands)
