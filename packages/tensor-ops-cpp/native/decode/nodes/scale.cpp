// scale: factor * x.
#include "decode/executor/node.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

void run_scale(const decode::Share& share) {
  const std::size_t count = share.rows * share.columns, end = share.end_of(count);
  const float* const x = share.in(0);
  float* const y = share.out();
  const auto factor =
      static_cast<float>(share.attributes_as<decode::ScaleNode::Attributes>().factor);
#pragma omp simd
  for (std::size_t i = share.begin_of(count); i < end; ++i) y[i] = factor * x[i];
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

DEFINE_NODE(scale, run_scale)
