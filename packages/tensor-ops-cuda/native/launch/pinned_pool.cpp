#include "launch/pinned_pool.h"

#include <unistd.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>

#include "launch/cuda.h"
#include "launch/device.h"

namespace tensor_ops {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t physical_memory() {
  return static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
         static_cast<std::size_t>(std::max(0L, sysconf(_SC_PAGE_SIZE)));
}

std::size_t default_limit() { return std::min(physical_memory() / 16, std::size_t{4} << 30); }

// Pinned memory cannot be swapped out: results that are kept must not take the whole machine's.
std::size_t most_in_use() { return physical_memory() / 4; }

// Blocks of sizes an eighth apart are found again by calls of nearly the same size.
std::size_t rounded(std::size_t bytes) {
  std::size_t grain = kPage;
  while (grain * 16 <= bytes) grain *= 2;
  return (bytes + grain - 1) / grain * grain;
}

class Pool {
 public:
  void* take(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    if (void* kept = take_kept(size)) return kept;
    if (is_too_much(size)) return nullptr;
    void* fresh = allocate(size);
    if (!fresh && trim(0) > 0) fresh = allocate(size);
    if (!fresh) return nullptr;
    const std::lock_guard lock(mutex_);
    ++state_.misses;
    note_use(fresh, size);
    return fresh;
  }

  void give_back(void* data) {
    std::size_t limit;
    {
      const std::lock_guard lock(mutex_);
      const auto found = used_.find(data);
      kept_.push_back({data, found->second});
      state_.used_bytes -= found->second;
      state_.held_bytes += found->second;
      used_.erase(found);
      limit = state_.limit;
    }
    trim(limit);
  }

  // The oldest first.
  std::size_t trim(std::size_t limit) {
    std::size_t freed = 0;
    for (;;) {
      std::unique_lock lock(mutex_);
      if (kept_.empty() || state_.held_bytes <= limit) return freed;
      const Block block = kept_.front();
      kept_.pop_front();
      state_.held_bytes -= block.bytes;
      lock.unlock();
      // At the process's end the driver may be gone, and its memory with it.
      if (cudaFreeHost(block.data) != cudaSuccess) cudaGetLastError();
      freed += block.bytes;
    }
  }

  void set_limit(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      state_.limit = bytes;
    }
    trim(bytes);
  }

  PinnedPoolState state() {
    const std::lock_guard lock(mutex_);
    PinnedPoolState state = state_;
    state.held_blocks = kept_.size();
    state.used_blocks = used_.size();
    return state;
  }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
  };

  // The one last given back, whose memory may still be in a cache.
  void* take_kept(std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                    [size](const Block& block) { return block.bytes == size; });
    if (found == kept_.rend()) return nullptr;
    void* data = found->data;
    kept_.erase(std::next(found).base());
    state_.held_bytes -= size;
    ++state_.hits;
    note_use(data, size);
    return data;
  }

  bool is_too_much(std::size_t size) {
    const std::lock_guard lock(mutex_);
    return state_.used_bytes + size > most_in_use();
  }

  void note_use(void* data, std::size_t size) {
    used_[data] = size;
    state_.used_bytes += size;
  }

  static void* allocate(std::size_t size) {
    void* data = nullptr;
    if (cudaHostAlloc(&data, size, cudaHostAllocPortable) == cudaSuccess) return data;
    cudaGetLastError();
    return nullptr;
  }

  std::mutex mutex_;
  std::list<Block> kept_;  // oldest first
  std::unordered_map<void*, std::size_t> used_;
  PinnedPoolState state_{default_limit(), 0, 0, 0, 0, 0, 0};
};

// Never destroyed: arrays may be freed after the module is gone.
Pool& pool() {
  static auto* the_pool = new Pool;
  return *the_pool;
}

}  // namespace

void* take_pinned(std::size_t bytes) { return pool().take(bytes); }
// A forked child has the memory, but neither the driver nor, perhaps, the lock.
void give_back_pinned(void* data) {
  if (!is_forked_child()) pool().give_back(data);
}
PinnedPoolState pinned_pool_state() { return pool().state(); }
void set_pinned_pool_limit(std::size_t bytes) {
  if (!is_forked_child()) pool().set_limit(bytes);
}
std::size_t trim_pinned_pool() { return is_forked_child() ? 0 : pool().trim(0); }

}  // namespace tensor_ops
