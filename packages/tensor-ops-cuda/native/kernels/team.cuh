// The threads that share a row: a part of a warp, whole warps, or the blocks of a cluster.
#pragma once

#include <cstdint>

#include "kernels/device.cuh"

namespace tensor_ops {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;
constexpr int kMostCluster = 8;  // blocks; what every device with clusters can run
constexpr unsigned kWholeWarp = 0xffffffffu;

// The shared memory of a team: what each warp and each block of the cluster has found, in two rooms
// used in turn, so that writing to one needs no barrier after reading the other.
struct TeamRoom {
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

// NaN is passed over.
struct Greater {
  template <class T>
  DEVICE T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

// Threads (x, y) of a block are lane x of row y. A team of more than a warp has a block, or a
// cluster's blocks, to itself. All threads of a block call every function together.
template <bool kCluster>
class Team {
 public:
  DEVICE Team() : room_(static_cast<TeamRoom*>(shared_memory())) {
    // No block writes into another's memory before that block has begun.
    if constexpr (kCluster) cluster_barrier();
  }

  DEVICE int lane() const {
    return static_cast<int>(kCluster ? rank() * blockDim.x + threadIdx.x : threadIdx.x);
  }
  DEVICE int lanes() const {
    return static_cast<int>(kCluster ? blocks() * blockDim.x : blockDim.x);
  }

  // The first of the team's rows, and how far it is to the next: all blocks' rows.
  DEVICE std::int64_t first_row() const {
    return std::int64_t{blockIdx.x / blocks()} * blockDim.y + threadIdx.y;
  }
  DEVICE std::int64_t row_step() const { return std::int64_t{gridDim.x / blocks()} * blockDim.y; }

  // One number of every lane, combined, in all of them; in the same order whatever else is
  // computed.
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
    T* room = reinterpret_cast<T*>(room_->of_warp[turn_]);
    const int warps = static_cast<int>(blockDim.x) / kWarp, lane = threadIdx.x % kWarp;
    if (lane == 0) room[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = room[lane % warps];
    for (int mask = warps / 2; mask > 0; mask /= 2)
      value = combined(value, __shfl_xor_sync(kWholeWarp, value, mask));
    return value;
  }

  template <class T, class Combine>
  DEVICE T combine_blocks(T value, Combine combined) {
    T* room = reinterpret_cast<T*>(room_->of_block[turn_]);
    if (threadIdx.x < blocks()) of_block(room, threadIdx.x)[rank()] = value;
    cluster_barrier();
    value = room[0];
    for (unsigned block = 1; block < blocks(); ++block) value = combined(value, room[block]);
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

  TeamRoom* room_;
  int turn_ = 0;
};

// Whether a condition holds for any row of this warp: lanes that shuffle together stay together.
DEVICE bool any_of_warp(bool condition) { return __any_sync(kWholeWarp, condition) != 0; }

}  // namespace tensor_ops
