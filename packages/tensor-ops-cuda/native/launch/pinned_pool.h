// Pinned host memory, which devices read and write by themselves. It is slow to allocate, so that
// blocks that are given back are kept for the next call.
#pragma once

#include <cstddef>
#include <memory>

namespace tensor_ops {

// Null if the system pins no more memory, or if results hold a quarter of the machine's memory
// already. A usable device must be current.
void* take_pinned(std::size_t bytes);
void give_back_pinned(void* data);

struct PinnedPoolState {
  std::size_t limit;  // bytes that may be kept; 0: none
  std::size_t held_bytes, held_blocks;
  std::size_t used_bytes, used_blocks;
  std::size_t hits, misses;
};

PinnedPoolState pinned_pool_state();
void set_pinned_pool_limit(std::size_t bytes);
// Gives all kept blocks back to the system, and returns their bytes.
std::size_t trim_pinned_pool();

// Pinned memory, or pageable memory where none can be pinned, which the driver copies more slowly.
using HostBuffer = std::unique_ptr<char, void (*)(void*)>;
HostBuffer new_host_buffer(std::size_t bytes);

}  // namespace tensor_ops
