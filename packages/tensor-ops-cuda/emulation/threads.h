// The threads, warps and blocks of a grid that runs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "device.h"
#include "fiber.h"
#include "lines.h"

namespace emulation {

inline constexpr unsigned kWarpThreads = 32;

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned group;
  unsigned char begun_with[16];  // what was copied when the copy began
};

// The event that a thread waits for, the number that the kernel gives to that wait, and the line
// of the statement; 0 without one.
struct Place {
  const char* what = nullptr;  // null for a thread that runs
  int wait = 0, line = 0;
};

struct Block;

struct Thread {
  uint3 index, block_index;
  Block* block;
  unsigned number;         // within the block
  Fiber* fiber = nullptr;  // from the thread's start to its end
  Place place{};
  std::uint64_t seen = 0;    // the changes that were known when it last read a counter
  unsigned copy_groups = 0;  // that it has committed
  std::vector<AsyncCopy> copies{};
};

// Threads that wait for each other.
struct Barrier {
  unsigned live = 0;  // how many have to come
  std::vector<Thread*> waiting;
};

struct Warp {
  Barrier barrier;
  Collective work = nullptr;  // what the lanes do together when all have come
  std::array<void*, kWarpThreads> given{};
};

struct Block {
  unsigned index;  // in the grid
  unsigned rank;   // in the cluster
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier all;
  std::array<Barrier, 16> named;
  Barrier* cluster;
  std::unique_ptr<char[]> shared;
  BlockMemory memory;

  Warp& warp_of(const Thread& thread) { return warps[thread.number / kWarpThreads]; }
};

}  // namespace emulation
