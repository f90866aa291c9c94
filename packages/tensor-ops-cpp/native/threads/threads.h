// The number of threads that do the work of a call.
#pragma once

#include "declaration/shared.h"

namespace tensor_ops {

// The most threads a call uses: set_num_threads()'s number, else what the process may use.
TENSOR_OPS_SHARED int num_threads();
TENSOR_OPS_SHARED void set_num_threads(int threads);

// The wanted number of threads, at most 64 or the number of CPUs, whichever is larger.
TENSOR_OPS_SHARED int sensible_threads(int wanted);

// The number of threads that pay for a call that takes one thread this time.
int threads_for(double nanoseconds);

}  // namespace tensor_ops
