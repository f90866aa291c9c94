// How many threads do the work of a call, and running it on them.
#pragma once

#include <cstddef>

#include "launch/declaration.h"

namespace tensor_ops {

bool has_openmp();

// The most threads a call uses: set_num_threads()'s number, else what the process may use.
int num_threads();
void set_num_threads(int threads);

// Threads for a call of so many elements: 1 below the size from which on more pay.
int threads_for(Cost cost, std::size_t elements);

// Calls work(context, piece) for each piece < pieces, each on a thread of its own where there are
// such.
using Work = void (*)(const void* context, int piece);
void run_pieces(int pieces, Work work, const void* context);

}  // namespace tensor_ops
