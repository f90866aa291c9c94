// Pinned host memory, which devices read and write by themselves. It is slow to allocate, so that
// blocks that are given back are kept for the next call.
#pragma once

#include <cstddef>
#include <memory>

#include "declaration/shared.h"

namespace tensor_ops {

// Null if the system pins no more memory, or if results hold a quarter of the machine's memory
// already. A usable device must be current.
TENSOR_OPS_SHARED void* take_pinned(std::size_t bytes);
TENSOR_OPS_SHARED void give_back_pinned(void* data);

struct PinnedPoolState {
  std::size_t limit;  // bytes that may be kept; 0: none
  std::size_t held_bytes, held_blocks;
  std::size_t used_bytes, used_blocks;
  std::size_t hits, misses;
};

TENSOR_OPS_SHARED PinnedPoolState pinned_pool_state();
TENSOR_OPS_SHARED void set_pinned_pool_limit(std::size_t bytes);
// Gives all kept blocks back to the system, and returns their bytes.
TENSOR_OPS_SHARED std::size_t trim_pinned_pool();

// Pinned memory, or pageable memory where none can be pinned, which the driver copies more slowly.
using HostBuffer = std::unique_ptr<char, void (*)(void*)>;
HostBuffer new_host_buffer(std::size_t bytes);

}  // namespace tensor_ops
