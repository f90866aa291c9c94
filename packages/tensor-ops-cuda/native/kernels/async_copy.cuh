// Copies from device memory into shared memory that go on while the thread does other work. Of
// compute capability 8.0.
//
// A thread copies, and commits what it has copied since it last did so as a group. The groups
// arrive in order; until a thread has waited for a group its target holds nothing that may be read
// or written, and what others have copied it may read after a barrier with them. The source must
// not change meanwhile. In the words of the PTX ISA ("cp.async", "cp.async.wait_group"): the copies
// are weak operations without an order among themselves, and a wait is for the copies of the thread
// that executes it, so that a barrier at cta scope, or of the warp, makes them visible to others.
#pragma once

#include "kernels/waits.cuh"

namespace tensor_ops {

#ifdef __CUDACC__

// 16 bytes, which pass by the cache of the multiprocessor. Both addresses are multiples of 16.
DEVICE void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}

DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until no more than kGroupsLeft of the last groups are on their way.
template <int kGroupsLeft>
DEVICE void wait_copies(int) {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
}

#else

inline void copy_async(void* to, const void* from) { emulation::copy_async(to, from); }
inline void commit_copies() { emulation::commit_copies(); }
template <int kGroupsLeft>
void wait_copies(int wait) {
  emulation::wait_copies(kGroupsLeft, wait);
}

#endif

}  // namespace tensor_ops
