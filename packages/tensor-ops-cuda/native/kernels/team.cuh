// The threads that share a row: a part of a warp, whole warps, or the blocks of a cluster.
#pragma once

#include <cstdint>

#include "kernels/device.cuh"

namespace tensor_ops {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;
constexpr int kMostCluster = 8;  // blocks; every device that has clusters can run as many
constexpr unsigned kWholeWarp = 0xffffffffu;

// The shared memory of a team: one number of each warp, and of each block of the cluster. There are
// two sets that are used in turn, so that writing to one needs no barrier after reading the other.
struct TeamMemory {
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

// The team of the calling thread. Thread (x, y) of a block is lane x of the team of row y. A team
// of more than a warp has a block, or all blocks of a cluster, to itself. All threads of a block
// must call combine() together.
template <bool kCluster>
class Team {
 public:
  DEVICE Team() : memory_(static_cast<TeamMemory*>(shared_memory())) {
    // A block must not write into the memory of another one before that has started.
    if constexpr (kCluster) cluster_barrier();
  }

  DEVICE int lane() const {
    return static_cast<int>(kCluster ? rank() * blockDim.x + threadIdx.x : threadIdx.x);
  }
  DEVICE int lanes() const {
    return static_cast<int>(kCluster ? blocks() * blockDim.x : blockDim.x);
  }

  // The team computes rows first_row(), first_row() + row_step(), ...
  DEVICE std::int64_t first_row() const {
    return std::int64_t{blockIdx.x / blocks()} * blockDim.y + threadIdx.y;
  }
  DEVICE std::int64_t row_step() const { return std::int64_t{gridDim.x / blocks()} * blockDim.y; }

  // Combines one number of every lane, in an order that depends on the number of lanes alone; every
  // lane gets the result.
  template <class T, class Combine>
  DEVICE T combine(T value, Combine combined) {
    const int lanes = static_cast<int>(blockDim.x);
    for (int mask = (lanes < kWarp ? lanes : kWarp) / 2; mask > 0; mask /= 2)
      value = combined(value, __shfl_xor_sync(kWholeWarp, value, mask));
    if (lanes > kWarp) value = combine_warps(value, combined);
    if constexpr (kCluster) value = combine_blocks(value, combined);
    turn_ ^= 1;
    return value;
  }

 private:
  template <class T, class Combine>
  DEVICE T combine_warps(T value, Combine combined) {
    T* numbers = reinterpret_cast<T*>(memory_->of_warp[turn_]);
    const int warps = static_cast<int>(blockDim.x) / kWarp, lane = threadIdx.x % kWarp;
    if (lane == 0) numbers[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = numbers[lane % warps];
    for (int mask = warps / 2; mask > 0; mask /= 2)
      value = combined(value, __shfl_xor_sync(kWholeWarp, value, mask));
    return value;
  }

  template <class T, class Combine>
  DEVICE T combine_blocks(T value, Combine combined) {
    T* numbers = reinterpret_cast<T*>(memory_->of_block[turn_]);
    if (threadIdx.x < blocks()) of_block(numbers, threadIdx.x)[rank()] = value;
    cluster_barrier();
    value = numbers[0];
    for (unsigned block = 1; block < blocks(); ++block) value = combined(value, numbers[block]);
    return value;
  }

#if HAS_CLUSTERS
  DEVICE static unsigned rank() { return kCluster ? __clusterRelativeBlockRank() : 0; }
  DEVICE static unsigned blocks() { return kCluster ? __clusterSizeInBlocks() : 1; }
  DEVICE static void cluster_barrier() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
  }
  template <class T>
  DEVICE static T* of_block(T* own, unsigned block) {
    return static_cast<T*>(__cluster_map_shared_rank(own, block));
  }
#else
  DEVICE static unsigned rank() { return 0; }
  DEVICE static unsigned blocks() { return 1; }
  DEVICE static void cluster_barrier() {}
  template <class T>
  DEVICE static T* of_block(T* own, unsigned) {
    return own;
  }
#endif

  TeamMemory* memory_;
  int turn_ = 0;
};

// Whether a condition holds for any lane of the warp. Lanes that exchange numbers must take the
// same branches, also where the warp has several rows.
DEVICE bool any_of_warp(bool condition) { return __any_sync(kWholeWarp, condition) != 0; }

}  // namespace tensor_ops
