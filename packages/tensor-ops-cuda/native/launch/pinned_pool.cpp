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

// Pinned memory cannot be swapped out: results that a program keeps must not take all of the
// machine's memory.
std::size_t most_in_use() { return physical_memory() / 4; }

// Sizes are rounded up to steps of an eighth at most, so that calls of nearly the same size find a
// kept block.
std::size_t rounded(std::size_t bytes) {
  std::size_t grain = kPage;
  while (grain * 16 <= bytes) grain *= 2;
  return (bytes + grain - 1) / grain * grain;
}

class PinnedPool {
 public:
  void* take(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (void* kept = take_kept(size)) return kept;
      if (state_.used_bytes + size > most_in_use()) return nullptr;
    }
    void* fresh = allocate(size);
    if (!fresh && trim(0) > 0) fresh = allocate(size);
    if (!fresh) return nullptr;
    const std::lock_guard lock(mutex_);
    ++state_.misses;
    note_use(fresh, size);
    return fresh;
  }

  void give_back(void* data) {
    std::unique_lock lock(mutex_);
    const auto found = used_.find(data);
    kept_.push_back({data, found->second});
    state_.used_bytes -= found->second;
    state_.held_bytes += found->second;
    used_.erase(found);
    const std::size_t limit = state_.limit;
    lock.unlock();
    trim(limit);
  }

  // Frees kept blocks, the oldest first, until those that are left have at most `limit` bytes.
  std::size_t trim(std::size_t limit) {
    std::size_t freed = 0;
    for (;;) {
      std::unique_lock lock(mutex_);
      if (kept_.empty() || state_.held_bytes <= limit) return freed;
      const Block block = kept_.front();
      kept_.pop_front();
      state_.held_bytes -= block.bytes;
      lock.unlock();
      // At the end of the process the driver may have been unloaded, and has freed its memory.
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

  // The block that was given back last, since its memory may still be in a cache.
  void* take_kept(std::size_t size) {
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
PinnedPool& pool() {
  static auto* pinned_pool = new PinnedPool;
  return *pinned_pool;
}

}  // namespace

void* take_pinned(std::size_t bytes) { return pool().take(bytes); }
// A forked child has neither the driver nor, perhaps, a lock that it could take.
void give_back_pinned(void* data) {
  if (!is_forked_child()) pool().give_back(data);
}
PinnedPoolState pinned_pool_state() { return pool().state(); }
void set_pinned_pool_limit(std::size_t bytes) {
  if (!is_forked_child()) pool().set_limit(bytes);
}
std::size_t trim_pinned_pool() { return is_forked_child() ? 0 : pool().trim(0); }

HostBuffer new_host_buffer(std::size_t bytes) {
  if (void* pinned = take_pinned(bytes)) return {static_cast<char*>(pinned), give_back_pinned};
  return {new char[bytes], [](void* data) { delete[] static_cast<char*>(data); }};
}

}  // namespace tensor_ops
