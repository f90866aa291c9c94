#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "cuda_runtime.h"
#include "stack_switch.h"

namespace emulation {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr unsigned kWarp = 32;

struct Fiber {
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  ucontext_t start;
  jmp_buf at;
  bool has_started = false;
  void* kept = nullptr;  // by leave_stack()
};

struct Block;

struct Thread {
  uint3 index, block_index;
  Block* block;
  unsigned number;         // within the block
  std::uint64_t given[2];  // in exchanges of either parity
  unsigned exchanges = 0;
  Fiber* fiber = nullptr;  // while it waits
};

// Threads that wait for each other.
struct Barrier {
  unsigned live = 0;
  std::vector<Thread*> waiting;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Barrier> warps;
  Barrier all;
  std::array<Barrier, 16> named;
  std::unique_ptr<char[]> shared;
  unsigned rank;
};

class Cluster {
 public:
  Cluster(const Grid& grid, const std::function<void()>& body, std::mt19937& order)
      : grid_(grid), body_(body), order_(order), blocks_(grid.cluster) {
    for (unsigned rank = 0; rank < grid.cluster; ++rank) prepare(blocks_[rank], rank);
  }

  void run(unsigned first_block) {
    const unsigned threads = grid_.threads.x * grid_.threads.y * grid_.threads.z;
    pending_.clear();
    ready_.clear();
    barrier_ = {};
    barrier_.live = threads * grid_.cluster;
    for (Block& block : blocks_) {
      std::memset(block.shared.get(), 0xff, grid_.shared_bytes);  // NaN
      number_threads(block, first_block + block.rank);
      block.all.live = threads;
      for (unsigned warp = 0; warp < block.warps.size(); ++warp)
        block.warps[warp].live = std::min(kWarp, threads - warp * kWarp);
      for (Thread& thread : block.threads) pending_.push_back(&thread);
    }
    std::shuffle(pending_.begin(), pending_.end(), order_);
    schedule();
  }

  void wait(Barrier& barrier) {
    barrier.waiting.push_back(current_);
    Thread* self = current_;
    self->fiber = running_;
    release_if_complete(barrier);
    back_to_scheduler(self->fiber);
  }

  unsigned size() const { return grid_.cluster; }
  Thread* current() const { return current_; }
  Barrier& barrier() { return barrier_; }
  Block& block(unsigned rank) { return blocks_[rank]; }
  void run_pending();
  void entered_fiber(Fiber* fiber) { scheduler_stack_ = enter_stack(fiber->kept); }
  Fiber* running() const { return running_; }

 private:
  void prepare(Block& block, unsigned rank) {
    const unsigned threads = grid_.threads.x * grid_.threads.y * grid_.threads.z;
    block.rank = rank;
    block.threads.resize(threads);
    block.warps.resize((threads + kWarp - 1) / kWarp);
    block.shared.reset(new char[grid_.shared_bytes + 1]);
  }

  void number_threads(Block& block, unsigned number) {
    const dim3 all = grid_.blocks, size = grid_.threads;
    const uint3 index = {number % all.x, number / all.x % all.y, number / all.x / all.y};
    for (unsigned t = 0; t < block.threads.size(); ++t) {
      const uint3 own = {t % size.x, t / size.x % size.y, t / size.x / size.y};
      block.threads[t] = {own, index, &block, t, {}, 0, nullptr};
    }
  }

  void release_if_complete(Barrier& barrier) {
    if (barrier.waiting.empty() || barrier.waiting.size() < barrier.live) return;
    for (Thread* thread : barrier.waiting) ready_.push_back(thread);
    barrier.waiting.clear();
  }

  void leave(Thread& thread) {
    Barrier* own[] = {&thread.block->warps[thread.number / kWarp], &thread.block->all, &barrier_};
    for (Barrier* barrier : own) {
      --barrier->live;
      release_if_complete(*barrier);
    }
  }

  void schedule();
  void resume(Fiber* fiber);
  void back_to_scheduler(Fiber* self);
  void make_current(Thread* thread) {
    current_ = thread;
    threadIdx = thread->index;
    blockIdx = thread->block_index;
  }

  const Grid& grid_;
  const std::function<void()>& body_;
  std::mt19937& order_;
  std::vector<Block> blocks_;
  Barrier barrier_;
  std::vector<Thread*> pending_, ready_;
  Thread* current_ = nullptr;
  Fiber* running_ = nullptr;
  jmp_buf scheduler_;
  StackBounds scheduler_stack_;
  void* scheduler_kept_ = nullptr;
};

thread_local Cluster* cluster = nullptr;
// Fibers that no thread waits in.
thread_local std::vector<std::unique_ptr<Fiber>> fibers;
thread_local std::vector<Fiber*> idle;

void fiber_main() {
  cluster->entered_fiber(cluster->running());
  for (;;) cluster->run_pending();
}

// Threads one after another, until one of them waits: it keeps the fiber.
void Cluster::run_pending() {
  while (!pending_.empty()) {
    make_current(pending_.back());
    pending_.pop_back();
    body_();
    leave(*current_);
  }
  Fiber* self = running_;
  idle.push_back(self);
  back_to_scheduler(self);
}

// Returns when the fiber is resumed: by another cluster, it may be.
void Cluster::back_to_scheduler(Fiber* self) {
  leave_stack(&self->kept, scheduler_stack_);
  if (_setjmp(self->at) == 0) _longjmp(scheduler_, 1);
  cluster->entered_fiber(self);
}

void Cluster::resume(Fiber* fiber) {
  running_ = fiber;
  leave_stack(&scheduler_kept_, {fiber->stack.get(), kStackBytes});
  if (_setjmp(scheduler_) != 0) {
    enter_stack(scheduler_kept_);
    return;
  }
  if (fiber->has_started) _longjmp(fiber->at, 1);
  fiber->has_started = true;
  setcontext(&fiber->start);
}

void Cluster::schedule() {
  for (;;) {
    if (!pending_.empty()) {
      if (idle.empty()) {
        auto fiber = std::make_unique<Fiber>();
        getcontext(&fiber->start);
        fiber->start.uc_stack.ss_sp = fiber->stack.get();
        fiber->start.uc_stack.ss_size = kStackBytes;
        makecontext(&fiber->start, fiber_main, 0);
        idle.push_back(fiber.get());
        fibers.push_back(std::move(fiber));
      }
      Fiber* fiber = idle.back();
      idle.pop_back();
      resume(fiber);
    } else if (!ready_.empty()) {
      std::swap(ready_[order_() % ready_.size()], ready_.back());
      make_current(ready_.back());
      ready_.pop_back();
      resume(current_->fiber);
    } else {
      break;
    }
  }
  if (barrier_.live == 0) return;
  std::fprintf(stderr, "emulation: a barrier that not all threads reach\n");
  std::abort();
}

}  // namespace

void run_grid(const Grid& grid, const std::function<void()>& body) {
  static std::mutex one_at_a_time;
  static std::mt19937 order{20240229};
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  Cluster running(grid, body, order);
  cluster = &running;
  blockDim = grid.threads;
  gridDim = grid.blocks;
  const unsigned blocks = grid.blocks.x * grid.blocks.y * grid.blocks.z;
  for (unsigned first = 0; first < blocks; first += grid.cluster) running.run(first);
  cluster = nullptr;
}

void* shared_memory() { return cluster->current()->block->shared.get(); }
unsigned cluster_rank() { return cluster->current()->block->rank; }
unsigned cluster_size() { return cluster->size(); }
unsigned lane() { return cluster->current()->number % kWarp; }

void* shared_memory_of(const void* own, unsigned rank) {
  const auto* first = static_cast<const char*>(shared_memory());
  return cluster->block(rank).shared.get() + (static_cast<const char*>(own) - first);
}

void block_barrier() { cluster->wait(cluster->current()->block->all); }
void named_barrier(unsigned number, unsigned threads) {
  Barrier& barrier = cluster->current()->block->named.at(number);
  barrier.live = threads;
  cluster->wait(barrier);
}
void cluster_barrier() { cluster->wait(cluster->barrier()); }

// A lane may be one exchange ahead of the others, but never two, so that the value it gave before
// the last one is still needed, and there are two.
std::uint64_t exchange(std::uint64_t given, unsigned from_lane) {
  Thread& self = *cluster->current();
  const unsigned parity = self.exchanges++ % 2, warp = self.number / kWarp;
  self.given[parity] = given;
  cluster->wait(self.block->warps[warp]);
  const unsigned from = warp * kWarp + from_lane;
  return from < self.block->threads.size() ? self.block->threads[from].given[parity] : given;
}

}  // namespace emulation
