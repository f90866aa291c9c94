// The threads that share a row: a part of a warp, whole warps, or the blocks of a cluster.
#pragma once

#include <cstdint>

#include "kernels/device.cuh"

namespace tensor_ops {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;
constexpr int kMostCluster = 8;  // blocks; every device that has clusters can run as many
constexpr unsigned kWholeWarp = 0xffffffffu;

// The shared memory of a group: one number of each warp, and of each block of the cluster. There
// are two sets that are used in turn, so that writing to one needs no barrier after reading the
// other.
struct GroupMemory {
  double of_warp[2][kMostThreads / kWarp];
  double of_block[2][kMostCluster];
};

struct Plus {
  template <class T>
  DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};

struct Lesser {
  template <class T>
  DEVICE T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

// NaN is ignored.
struct Greater {
  template <class T>
  DEVICE T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

// Threads is what a group is made of:
//
//     lane(), lanes()  the number of the calling thread in the group, and how many threads the
//     group
//                      has: a power of two. Lanes that are neighbours are so in their warp, and a
//                      group of more than a warp consists of whole ones.
//     wait()           a barrier of the group's threads, which also makes what they wrote to shared
//                      memory before it visible after it. combine() waits once if the group has
//                      more than a warp.
//
// A Threads without members takes no registers.

// The threads of a block that have the same threadIdx.y, which wait for the whole block.
struct BlockThreads {
  DEVICE int lane() const { return static_cast<int>(threadIdx.x); }
  DEVICE int lanes() const { return static_cast<int>(blockDim.x); }
  DEVICE void wait() const { __syncthreads(); }
};

// Threads of one block that share a row, and the shared memory by which they exchange numbers. A
// body that computes a row knows nothing else of where it runs. All threads that wait together, and
// all lanes of a warp, must call combine() together. A group of more than a warp needs memory of
// its own, and no other group may be made with it until all threads have met; a smaller one uses
// none.
template <class Threads>
class ThreadGroup : public Threads {
 public:
  DEVICE ThreadGroup(Threads threads, GroupMemory* memory) : Threads(threads), memory_(memory) {}

  // Combines one number of every lane, in an order that depends on the number of lanes alone; every
  // lane gets the result.
  template <class T, class Combine>
  DEVICE T combine(T value, Combine combined) {
    value = combine_lanes(value, combined);
    turn_ ^= 1;
    return value;
  }

 protected:
  template <class T, class Combine>
  DEVICE T combine_lanes(T value, Combine combined) {
    const int lanes = Threads::lanes();
    for (int mask = (lanes < kWarp ? lanes : kWarp) / 2; mask > 0; mask /= 2)
      value = combined(value, __shfl_xor_sync(kWholeWarp, value, mask));
    return lanes > kWarp ? combine_warps(value, combined) : value;
  }

  GroupMemory* memory_;
  int turn_ = 0;

 private:
  template <class T, class Combine>
  DEVICE T combine_warps(T value, Combine combined) {
    T* numbers = reinterpret_cast<T*>(memory_->of_warp[turn_]);
    const int warps = Threads::lanes() / kWarp;
    // Unsigned, which is quicker to divide.
    const unsigned number = static_cast<unsigned>(Threads::lane()), lane = number % kWarp;
    if (lane == 0) numbers[number / kWarp] = value;
    Threads::wait();
    value = numbers[lane % warps];
    for (int mask = warps / 2; mask > 0; mask /= 2)
      value = combined(value, __shfl_xor_sync(kWholeWarp, value, mask));
    return value;
  }
};

// All threads of a block must call combine() together. Where a block has several groups, each is a
// warp or a part of one.
using BlockGroup = ThreadGroup<BlockThreads>;

// The threads of all blocks of a cluster, which must call combine() together.
class ClusterGroup : BlockGroup {
 public:
  DEVICE ClusterGroup(BlockThreads threads, GroupMemory* memory) : BlockGroup(threads, memory) {
    // A block must not write into the memory of another one before that has started.
    cluster_barrier();
  }

  DEVICE int lane() const { return static_cast<int>(rank() * blockDim.x + threadIdx.x); }
  DEVICE int lanes() const { return static_cast<int>(blocks() * blockDim.x); }

  template <class T, class Combine>
  DEVICE T combine(T value, Combine combined) {
    value = combine_blocks(combine_lanes(value, combined), combined);
    turn_ ^= 1;
    return value;
  }

#if HAS_CLUSTERS
  DEVICE static unsigned blocks() { return __clusterSizeInBlocks(); }

 private:
  DEVICE static unsigned rank() { return __clusterRelativeBlockRank(); }
  DEVICE static void cluster_barrier() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
  }
  template <class T>
  DEVICE static T* of_block(T* own, unsigned block) {
    return static_cast<T*>(__cluster_map_shared_rank(own, block));
  }
#else
  DEVICE static unsigned blocks() { return 1; }

 private:
  DEVICE static unsigned rank() { return 0; }
  DEVICE static void cluster_barrier() {}
  template <class T>
  DEVICE static T* of_block(T* own, unsigned) {
    return own;
  }
#endif

  template <class T, class Combine>
  DEVICE T combine_blocks(T value, Combine combined) {
    T* numbers = reinterpret_cast<T*>(memory_->of_block[turn_]);
    if (threadIdx.x < blocks()) of_block(numbers, threadIdx.x)[rank()] = value;
    cluster_barrier();
    value = numbers[0];
    for (unsigned block = 1; block < blocks(); ++block) value = combined(value, numbers[block]);
    return value;
  }
};

// A condition holds for any lane of the warp. Lanes that exchange numbers must take the same
// branches, also where the warp has several rows.
DEVICE bool any_of_warp(bool condition) { return __any_sync(kWholeWarp, condition) != 0; }

}  // namespace tensor_ops
