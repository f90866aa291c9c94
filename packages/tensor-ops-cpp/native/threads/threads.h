// The number of threads that do the work of a call, and the CPUs and memory that the process may
// use, respecting affinity and cgroup limits.
#pragma once

#include <cstdint>
#include <vector>

#include "declaration/shared.h"

namespace tensor_ops {

// The most threads a call uses: set_num_threads()'s number, else what the process may use.
TENSOR_OPS_SHARED int num_threads();
TENSOR_OPS_SHARED void set_num_threads(int threads);

// The wanted number of threads, at most 64 or the number of CPUs, whichever is larger.
TENSOR_OPS_SHARED int sensible_threads(int wanted);

// The number of threads that pay for a call that takes one thread this time.
int threads_for(double nanoseconds);

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
