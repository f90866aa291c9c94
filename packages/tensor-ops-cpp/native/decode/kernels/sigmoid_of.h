// The sigmoid of a number.
#pragma once

#include "kernels/exp.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// 1 / (1 + exp(-x)), from what never overflows.
TENSOR_OPS_INLINE float sigmoid(float x) {
  const float e = scaled_exp(x < 0 ? x : -x).value();
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
