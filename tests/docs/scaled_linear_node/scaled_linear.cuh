// scaled_linear: factor * x W^T.
#pragma once

#include "decode/kernels/product_kind.cuh"

namespace tensor_ops::decode {

DEVICE float scaled_linear_result(const DevicePhase& phase, float sum) {
  return static_cast<float>(attributes_of<ScaledLinearNode::Attributes>(phase).factor) * sum;
}

}  // namespace tensor_ops::decode
