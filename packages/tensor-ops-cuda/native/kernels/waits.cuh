// Barriers whose calls have numbers, for kernels that are tested by leaving out one wait at a time.
//
// A kernel numbers all of its waits, from 1, those of kernels/grid.cuh and kernels/async_copy.cuh
// too:
//
//     enum Wait : int { kPrepared = 1, kJoined, kLayer, kLast = kLayer + kGridWaits };
//
// On a GPU the numbers compile to nothing. An emulated device can be told to do nothing at one of
// them (emulatedLeaveOut), upon which the kernel's results must be wrong: else the wait is
// unnecessary, or the test too weak to miss it.
#pragma once

#include "kernels/device.cuh"

namespace tensor_ops {

#ifdef __CUDACC__

DEVICE constexpr bool is_left_out(int) { return false; }

// The threads of a block meet, and see what the others wrote before: a barrier at cta scope (PTX
// ISA, "bar, barrier").
DEVICE void block_sync(int) { __syncthreads(); }

// The lanes of a warp do (PTX ISA, "bar.warp.sync").
DEVICE void warp_sync(int) { __syncwarp(); }

// So many threads of a block do, whole warps, at one of its barriers 1 to 15.
DEVICE void part_sync(unsigned barrier, unsigned threads, int) {
  __barrier_sync_count(barrier, threads);
}

#else

inline bool is_left_out(int wait) { return emulation::is_left_out(wait); }
inline void block_sync(int wait) { emulation::block_barrier(wait); }
inline void warp_sync(int wait) { emulation::warp_barrier(wait); }
inline void part_sync(unsigned barrier, unsigned threads, int wait) {
  emulation::named_barrier(barrier, threads, wait);
}

#endif

}  // namespace tensor_ops
