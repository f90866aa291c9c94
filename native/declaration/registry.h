// All ops that are compiled in. Each backend defines its Op, a Declaration with the backend's
// kernels, in launch/op.h.
#pragma once

#include <vector>

#include "declaration/shared.h"

namespace tensor_ops {

struct Op;

// Sorted by name. An op whose name starts with an underscore is for the tests.
TENSOR_OPS_SHARED const std::vector<const Op*>& registered_ops();

// Enters an op of static storage duration into registered_ops().
struct Registration {
  explicit Registration(const Op& op);
};

}  // namespace tensor_ops
