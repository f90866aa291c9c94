#include "memory/result_pool.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>

#include "memory/pages.h"
#include "memory/pool_limit.h"
#include "threads/fork.h"

namespace tensor_ops {
namespace {

struct Block;

struct Links {
  Block* before = nullptr;
  Block* after = nullptr;
};

// The header in front of the memory that it describes. Keeping a block needs no other memory, so
// that freeing cannot fail.
struct alignas(64) Block {
  std::size_t mapped;  // bytes of its pages, this header included
  unsigned size_class;
  bool is_fresh;
  std::int64_t kept_since;  // seconds
  Links by_age;             // among all that are kept
  Links by_class;           // among those of its size

  char* memory() { return reinterpret_cast<char*>(this + 1); }
  std::size_t capacity() const { return mapped - sizeof(Block); }
};
static_assert(sizeof(Block) == 64, "the memory behind it starts on a cache line");

Block* block_of(const void* memory) {
  return const_cast<Block*>(static_cast<const Block*>(memory)) - 1;
}

// LIFO: the most recently freed block is reused first.
template <Links Block::* links>
class List {
 public:
  Block* first() const { return first_; }
  Block* last() const { return last_; }

  void push(Block* block) {
    (block->*links) = {nullptr, first_};
    (first_ ? (first_->*links).before : last_) = block;
    first_ = block;
  }
  void remove(Block* block) {
    const Links& own = block->*links;
    (own.before ? (own.before->*links).after : first_) = own.after;
    (own.after ? (own.after->*links).before : last_) = own.before;
  }

 private:
  Block* first_ = nullptr;
  Block* last_ = nullptr;
};

// Sizes between two powers of two share eight classes, so that a block is at most an eighth larger
// than what it is used for. Pages that nobody writes to are never made resident.
struct SizeClass {
  unsigned index;
  std::size_t bytes;
};
constexpr unsigned kClasses = 8 * 64;

SizeClass class_of(std::size_t bytes) {
  const std::size_t least = std::max<std::size_t>(bytes, 4096);
  const int exponent = 63 - __builtin_clzll(least - 1);
  const std::size_t step = std::size_t{1} << (exponent - 3);
  const std::size_t steps = (least + step - 1) / step;  // 9 to 16
  return {static_cast<unsigned>(8 * exponent) + static_cast<unsigned>(steps) - 9, steps * step};
}

// Blocks to be unmapped when this goes out of scope, after the lock is released.
class PendingUnmap {
 public:
  PendingUnmap() = default;
  PendingUnmap(const PendingUnmap&) = delete;
  PendingUnmap& operator=(const PendingUnmap&) = delete;
  ~PendingUnmap() {
    while (Block* block = blocks_.first()) {
      blocks_.remove(block);
      unmap_pages({block, block->mapped});
    }
  }
  void push(Block* block) { blocks_.push(block); }

 private:
  List<&Block::by_age> blocks_;
};

std::int64_t seconds_now() {
#if defined(CLOCK_MONOTONIC_COARSE)
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec;
#else
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
#endif
}

constexpr std::uint64_t kNotSet = std::numeric_limits<std::uint64_t>::max();

class ResultPool {
 public:
  void* allocate(std::size_t bytes) {
    if (bytes > std::numeric_limits<std::size_t>::max() / 4) return nullptr;
    const SizeClass size = class_of(bytes);
    Block* block = take(size.index);
    if (!block) block = map(size, bytes);
    if (!block && trim() > 0) block = map(size, bytes);
    return block ? block->memory() : nullptr;
  }

  void free(Block* block) {
    PendingUnmap pending;
    const std::lock_guard<std::mutex> own(mutex_);
    --state_.used_blocks;
    state_.used_bytes -= block->mapped;
    const std::uint64_t limit = this->limit();
    if (block->capacity() < kLeastKept || block->mapped > limit) return pending.push(block);
    shrink_to(limit - block->mapped, pending);
    keep(block);
  }

  std::uint64_t limit() {
    const std::uint64_t set = limit_.load(std::memory_order_relaxed);
    return set != kNotSet ? set : first_pool_limit().bytes;
  }

  void set_limit(std::uint64_t bytes) {
    PendingUnmap pending;
    const std::lock_guard<std::mutex> own(mutex_);
    limit_.store(std::min(bytes, kNotSet - 1), std::memory_order_relaxed);
    shrink_to(bytes, pending);
  }

  std::uint64_t trim() {
    PendingUnmap pending;
    const std::lock_guard<std::mutex> own(mutex_);
    const std::uint64_t held = state_.held_bytes;
    shrink_to(0, pending);
    return held;
  }

  PoolState state() {
    const std::lock_guard<std::mutex> own(mutex_);
    PoolState state = state_;
    state.limit = limit();
    return state;
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  Block* take(unsigned size_class) {
    PendingUnmap pending;
    const std::lock_guard<std::mutex> own(mutex_);
    Block* block = kept_[size_class].first();
    if (block) {
      drop(block);
      use(block);
      ++state_.hits;
    }
    give_back_idle(pending);
    return block;
  }

  Block* map(SizeClass size, std::size_t bytes) {
    const Pages pages = map_pages(sizeof(Block) + size.bytes, sizeof(Block) + bytes);
    if (!pages.first) return nullptr;
    Block* block = new (pages.first) Block{pages.bytes, size.index, true, 0, {}, {}};
    const std::lock_guard<std::mutex> own(mutex_);
    use(block);
    ++state_.misses;
    return block;
  }

  void use(Block* block) {
    ++state_.used_blocks;
    state_.used_bytes += block->mapped;
  }

  void keep(Block* block) {
    block->is_fresh = false;
    block->kept_since = seconds_now();
    by_age_.push(block);
    kept_[block->size_class].push(block);
    ++state_.held_blocks;
    state_.held_bytes += block->mapped;
  }

  void drop(Block* block) {
    by_age_.remove(block);
    kept_[block->size_class].remove(block);
    --state_.held_blocks;
    state_.held_bytes -= block->mapped;
  }

  void shrink_to(std::uint64_t bytes, PendingUnmap& pending) {
    while (state_.held_bytes > bytes) give_back_oldest(pending);
  }

  // No thread waits for time to pass: calls look at the oldest blocks, two at a time, so that none
  // has to do much and the pool still shrinks faster than it grows.
  void give_back_idle(PendingUnmap& pending) {
    constexpr std::int64_t kIdleSeconds = 60;
    for (int i = 0; i < 2 && by_age_.last(); ++i) {
      if (seconds_now() - by_age_.last()->kept_since < kIdleSeconds) return;
      give_back_oldest(pending);
    }
  }

  void give_back_oldest(PendingUnmap& pending) {
    Block* block = by_age_.last();
    drop(block);
    pending.push(block);
  }

  std::mutex mutex_;
  std::atomic<std::uint64_t> limit_{kNotSet};
  PoolState state_{};
  List<&Block::by_age> by_age_;
  List<&Block::by_class> kept_[kClasses];
};

// Never destroyed: arrays may be freed after everything else. It is constructed by its first use,
// as not every library's mutex can be constructed at compile time: MinGW's cannot.
union NeverDestroyed {
  NeverDestroyed() : pool() {}
  ~NeverDestroyed() {}
  ResultPool pool;
};
ResultPool& pool() {
  static NeverDestroyed made;
  return made.pool;
}

// A forked child must not find the lock held by a thread that it does not have. It starts with
// nothing kept: to write to pages that it shares with its parent would copy them first.
const bool results_survive_fork = call_at_fork([] { pool().lock(); }, [] { pool().unlock(); },
                                               [] {
                                                 pool().unlock();
                                                 pool().trim();
                                               });

}  // namespace

void* allocate_block(std::size_t bytes) { return pool().allocate(bytes); }

void* reallocate_block(void* memory, std::size_t bytes) {
  if (!memory) return allocate_block(bytes);
  const std::size_t capacity = block_of(memory)->capacity();
  if (bytes <= capacity && bytes >= capacity / 2) return memory;
  void* moved = allocate_block(bytes);
  if (!moved) return nullptr;
  std::memcpy(moved, memory, std::min(bytes, capacity));
  free_block(memory);
  return moved;
}

void free_block(void* memory) {
  if (memory) pool().free(block_of(memory));
}

bool is_fresh_block(const void* memory) { return block_of(memory)->is_fresh; }

PoolState pool_state() { return pool().state(); }

std::uint64_t pool_limit() { return results_survive_fork ? pool().limit() : 0; }

void set_pool_limit(std::uint64_t bytes) { pool().set_limit(bytes); }

std::uint64_t trim_pool() { return pool().trim(); }

}  // namespace tensor_ops
