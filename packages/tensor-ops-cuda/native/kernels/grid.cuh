// Exchange of values between blocks of a cooperative grid, and the barrier of all blocks.
//
// A block reads what another has written in the same launch by observe(), after it was written by
// publish(), and after a barrier of the grid. Emulated blocks do not see each other's writes
// earlier than these rules say.
//
// In the words of the PTX ISA, chapter "Memory Consistency Model": both are weak operations. The
// barrier of the writer's block, at cta scope, and then an add with release semantics at gpu scope
// put the write before a load of the counter with acquire semantics at gpu scope, in another block,
// and before what follows the barrier of that block ("Release and Acquire Patterns", "Causality
// Order"). The counter may have been added to by others in between ("Observation Order"). The model
// does not apply to ld.global.nc ("Scope and applicability of the model"): neither __ldg() nor a
// pointer that is both const and __restrict__ may lead to what is observed.
#pragma once

#include <cstddef>

#include "kernels/waits.cuh"

namespace tensor_ops {

#ifdef __CUDACC__

// Weak accesses of 4, 8 or 16 aligned bytes, or 1 or 2.
template <class T>
DEVICE void publish(T* to, const T& value) {
  *to = value;
}
template <class T>
DEVICE T observe(const T* from) {
  return *from;
}

// Adds to a counter, and returns what it was: atom.add with release semantics at gpu scope. Whoever
// then acquires the counter sees what this thread wrote before, and what it has seen by barriers of
// its block.
DEVICE unsigned add_release(unsigned* counter, unsigned addend, int) {
  unsigned before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter)), "r"(addend)
               : "memory");
  return before;
}

// ld with acquire semantics at gpu scope.
DEVICE unsigned load_acquire(const unsigned* counter, int) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return value;
}

#else

template <class T>
void publish(T* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  emulation::publish(to, &value, sizeof(T));
}
template <class T>
T observe(const T* from) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  T value;
  emulation::observe(&value, from, sizeof(T));
  return value;
}
inline unsigned add_release(unsigned* counter, unsigned addend, int wait) {
  return emulation::add_release(counter, addend, wait);
}
inline unsigned load_acquire(const unsigned* counter, int wait) {
  return emulation::load_acquire(counter, wait);
}

#endif

// The waits of a barrier of the grid whose first number is `wait`.
enum GridWait : int {
  kBlockHasWritten,  // of the block, before one thread tells the others
  kRelease,
  kAllHaveArrived,
  kAcquire,
  kBlockMayRead,  // of the block, until that thread has seen that all have arrived
  kArrival,       // of all others for this block; left out, they wait in vain
  kGridWaits,     // how many there are
};

// All blocks meet. Arriving and waiting are two calls, between which a block does what depends on
// no other: it reads weights, as a rule. All threads of a block make both calls.
class GridBarrier {
 public:
  // The counter is 0 before the first launch that uses it, and is left ready for the next one.
  DEVICE explicit GridBarrier(unsigned* counter) : counter_(counter) {}

  DEVICE void arrive(int wait) {
    block_sync(wait + kBlockHasWritten);
    // The top bit changes when the last block arrives, whatever the counter was.
    const unsigned addend = blockIdx.x == 0 ? kTopBit - (gridDim.x - 1) : 1u;
    if (threadIdx.x == 0 && !is_left_out(wait + kArrival))
      before_ = add_release(counter_, addend, wait + kRelease);
  }

  DEVICE void wait(int wait) {
    if (threadIdx.x == 0 && !is_left_out(wait + kAllHaveArrived))
      while (!have_all_arrived(wait)) continue;
    block_sync(wait + kBlockMayRead);
  }

  // Returns false, to all threads of the block, if it has waited for longer than so many
  // nanoseconds: the grid can meet no more. `gave_up` is in shared memory, and false.
  DEVICE bool wait_at_most(int wait, unsigned long long nanoseconds, bool* gave_up) {
    if (threadIdx.x == 0 && !is_left_out(wait + kAllHaveArrived)) {
      const unsigned long long start = global_timer();
      while (!have_all_arrived(wait) && !*gave_up) *gave_up = global_timer() - start > nanoseconds;
    }
    block_sync(wait + kBlockMayRead);
    return !*gave_up;
  }

 private:
  DEVICE bool have_all_arrived(int wait) const {
    return ((load_acquire(counter_, wait + kAcquire) ^ before_) & kTopBit) != 0;
  }

  static constexpr unsigned kTopBit = 0x80000000u;

  unsigned* counter_;
  unsigned before_ = 0;  // in thread 0, what the counter was when this block arrived
};

}  // namespace tensor_ops
