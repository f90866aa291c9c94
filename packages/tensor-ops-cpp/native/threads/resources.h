// CPUs and memory that the process may use, respecting affinity and cgroup limits.
#pragma once

#include <cstdint>
#include <vector>

#include "declaration/shared.h"

namespace tensor_ops {

// CPUs in the process's affinity mask.
int affinity_cpus();
// Their numbers; none where the system does not say.
std::vector<int> affinity_cpu_numbers();

// min(affinity, cgroup CPU quota rounded up, OMP_NUM_THREADS where set to a positive number); at
// least 1.
TENSOR_OPS_SHARED int allowed_threads();

// Bytes of RAM, or the cgroup's limit where that is lower; 0 where unknown.
TENSOR_OPS_SHARED std::uint64_t allowed_memory();

}  // namespace tensor_ops
