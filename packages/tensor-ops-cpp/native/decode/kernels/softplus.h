// log(1 + exp(x)), by which steps and rates of states are made positive.
#pragma once

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Where exp(x) is so large that adding one changes nothing, it is x itself.
TENSOR_OPS_INLINE float softplus(float x) {
  return x > 20 ? x : __builtin_log1pf(__builtin_expf(x));
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
