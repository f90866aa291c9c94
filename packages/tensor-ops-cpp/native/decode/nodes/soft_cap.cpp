// soft_cap: cap * tanh(x / cap).
#include "decode/executor/node.h"
#include "decode/kernels/tanh.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_soft_cap(const decode::Share& share) {
  const std::size_t count = share.rows * share.columns, end = share.end_of(count);
  const float* const x = share.in(0);
  float* const y = share.out();
  const auto cap = static_cast<float>(share.attributes_as<decode::SoftCapNode::Attributes>().cap);
#pragma omp simd
  for (std::size_t i = share.begin_of(count); i < end; ++i) y[i] = soft_capped(x[i], cap);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(soft_cap, run_soft_cap)
