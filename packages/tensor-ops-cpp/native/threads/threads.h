// How many threads do the work of a call.
#pragma once

#include "declaration/shared.h"

namespace tensor_ops {

// The most threads a call uses: set_num_threads()'s number, else what the process may use.
TENSOR_OPS_SHARED int num_threads();
TENSOR_OPS_SHARED void set_num_threads(int threads);

// What is wanted, but no more than anybody needs: 64, or as many as there are CPUs.
TENSOR_OPS_SHARED int sensible_threads(int wanted);

// Threads for a call that would take one thread so many nanoseconds: no more than pay.
int threads_for(double nanoseconds);

}  // namespace tensor_ops
