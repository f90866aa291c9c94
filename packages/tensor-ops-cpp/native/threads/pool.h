// A pool of threads that share the pieces of one job at a time.
#pragma once

namespace tensor_ops {

using Work = void (*)(const void* context, int piece);

constexpr int kMostPieces = 1 << 15;

// Calls work(context, piece) for every piece below pieces (at most kMostPieces), on the calling
// thread and on up to threads - 1 others, and returns when all are done. Which thread does which
// piece is not fixed. `work` must not throw.
void run_pieces(int pieces, int threads, Work work, const void* context);

// The other threads that would begin at once, without having to be woken.
int helpers_awake();

}  // namespace tensor_ops
