// Where the values of a program lie, and before which phases all threads meet at a barrier.
#pragma once

#include <cstddef>
#include <vector>

#include "decode/program/fusion.h"
#include "decode/program/program.h"

namespace tensor_ops::decode {

struct ValuePlan {
  // By value. `tokens` and the outputs of the program have none, kAbsent: they are in the arrays of
  // a step. Nor have those that no phase writes. Values that do not live at the same time share
  // memory.
  std::vector<std::size_t> offset;
  std::size_t bytes = 0;
  std::vector<bool> barrier_before;  // by phase
};

// uses_shared_scratch: by phase.
ValuePlan plan_values(const Program& program, const std::vector<Phase>& phases,
                      const std::vector<bool>& uses_shared_scratch);

}  // namespace tensor_ops::decode
