// An op of this backend: its declaration, and its kernels for every instruction-set level.
#pragma once

#include <array>
#include <vector>

#include "declaration/declaration.h"
#include "launch/run.h"

namespace tensor_ops {

// About how many nanoseconds one thread takes for an element of x that is in the cache, by dtype.
// Decides from which size on threads pay. Measured by benchmarks/threads.py; a CPU or an
// instruction-set level that takes longer gets threads a little later than it could.
using Cost = std::array<double, kDTypes>;

constexpr Cost nanoseconds(double float32, double float16, double bfloat16, double float64) {
  return {float32, float16, bfloat16, float64};
}

struct Op : Declaration {
  Cost cost;
  std::vector<const KernelTable*> kernels;  // one per compiled level, lowest first
};

}  // namespace tensor_ops
