// Large blocks of memory that are kept when they are freed, up to a limit, and handed out again:
// the pages of a fresh block cost several times the work that fills them. No Python here; any
// thread may call anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "declaration/shared.h"

namespace tensor_ops {

// Blocks from this size on are kept: from here on malloc may get its memory from the system, and
// give it back, for every block (M_MMAP_THRESHOLD is 128 KiB until it has learned).
constexpr std::size_t kLeastKept = 128 * 1024;

// Aligned to 64 bytes; null where there is no memory. What it held before is not erased.
TENSOR_OPS_SHARED void* allocate_block(std::size_t bytes);

// The contents move along, as realloc() does it. Null, with nothing changed, where there is no
// memory.
TENSOR_OPS_SHARED void* reallocate_block(void* block, std::size_t bytes);

// Null is allowed.
TENSOR_OPS_SHARED void free_block(void* block);

// Nobody has had the memory of a fresh block before.
TENSOR_OPS_SHARED bool is_fresh_block(const void* block);

struct PoolState {
  std::uint64_t limit;
  std::uint64_t held_bytes, held_blocks;
  std::uint64_t used_bytes, used_blocks;
  std::uint64_t hits, misses;
};
TENSOR_OPS_SHARED PoolState pool_state();

// Bytes of blocks that may be kept; 0: the pool is off.
TENSOR_OPS_SHARED std::uint64_t pool_limit();
TENSOR_OPS_SHARED void set_pool_limit(std::uint64_t bytes);

// Gives all that is kept back to the system; its bytes.
TENSOR_OPS_SHARED std::uint64_t trim_pool();

}  // namespace tensor_ops
