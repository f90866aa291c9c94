#include "running_grid.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace emulation {
namespace {

thread_local Fiber host;
thread_local std::vector<std::unique_ptr<Fiber>> fibers;
thread_local std::vector<Fiber*> idle;  // of the fibers those that no thread runs on

void fiber_main() {
  for (;;) running->run_threads();
}

Fiber* idle_fiber() {
  if (idle.empty()) {
    fibers.push_back(std::make_unique<Fiber>(fiber_main));
    return fibers.back().get();
  }
  Fiber* const fiber = idle.back();
  idle.pop_back();
  return fiber;
}

std::string text_of(const Place& place) {
  std::string text = place.what;
  if (place.wait != 0) text += " (wait " + std::to_string(place.wait) + ")";
  if (place.line != 0) text += " (line " + std::to_string(place.line) + ")";
  return text;
}

}  // namespace

RunningGrid::RunningGrid(const Grid& grid, const std::function<void()>& body)
    : grid_(grid), body_(body), num_blocks_(grid.blocks.x * grid.blocks.y * grid.blocks.z) {
  const unsigned at_once = grid.is_cooperative ? num_blocks_ : grid.cluster;
  blocks_.resize(at_once);
  clusters_.resize(at_once / grid.cluster);
  for (unsigned i = 0; i < at_once; ++i) prepare(blocks_[i], i);
}

Outcome RunningGrid::run() {
  const auto at_once = static_cast<unsigned>(blocks_.size());
  for (unsigned first = 0; first < num_blocks_ && outcome_.failure.empty(); first += at_once)
    run_blocks(first);
  return outcome_;
}

void RunningGrid::prepare(Block& block, unsigned number) {
  block.rank = number % grid_.cluster;
  block.cluster = &clusters_[number / grid_.cluster];
  block.threads.resize(threads());
  block.warps.resize((threads() + kWarpThreads - 1) / kWarpThreads);
  block.shared.reset(new char[grid_.shared_bytes + 1]);
}

void RunningGrid::number_threads(Block& block) {
  const dim3 all = grid_.blocks, size = grid_.threads;
  const uint3 index = {block.index % all.x, block.index / all.x % all.y,
                       block.index / all.x / all.y};
  for (unsigned t = 0; t < block.threads.size(); ++t) {
    const uint3 own = {t % size.x, t / size.x % size.y, t / size.x / size.y};
    block.threads[t] = {own, index, &block, t};
  }
}

void RunningGrid::run_blocks(unsigned first) {
  live_ = threads() * static_cast<unsigned>(blocks_.size());
  for (Barrier& cluster : clusters_) cluster.live = threads() * grid_.cluster;
  scheduler_.begin(blocks_);
  for (Block& block : blocks_) {
    block.index = first++;
    std::memset(block.shared.get(), 0xff, grid_.shared_bytes);  // NaN
    number_threads(block);
    block.all.live = threads();
    for (unsigned warp = 0; warp < block.warps.size(); ++warp)
      block.warps[warp].barrier.live = std::min(kWarpThreads, threads() - warp * kWarpThreads);
    for (Thread& thread : block.threads) scheduler_.add(&thread);
  }
  current_ = nullptr;
  Thread& thread = next();
  thread.fiber = fiber_ = idle_fiber();
  switch_fiber(host, *fiber_);
  if (!outcome_.failure.empty()) {
    idle.clear();
    for (const auto& fiber : fibers) {
      fiber->restart();
      idle.push_back(fiber.get());
    }
  }
  for (Block& block : blocks_) {
    block.memory.release();
    block.memory.acquire();
  }
}

// Threads one after another, until one of them waits: it keeps the fiber.
void RunningGrid::run_threads() {
  body_();
  Thread& ended = *current_;
  Fiber* const own = ended.fiber;
  ended.fiber = nullptr;
  ended.place = {};
  scheduler_.note_progress();
  leave(ended);
  if (--live_ == 0) {
    idle.push_back(own);
    return switch_fiber(*own, host);
  }
  Thread& thread = next();
  if (!thread.fiber) {
    thread.fiber = own;
    return;
  }
  idle.push_back(own);
  switch_fiber(*own, *(fiber_ = thread.fiber));
}

// Another thread runs, which may be the same.
void RunningGrid::go_on() {
  Thread& self = *current_;
  Thread& thread = next();
  if (&thread == &self) return;
  if (!thread.fiber) thread.fiber = idle_fiber();
  switch_fiber(*self.fiber, *(fiber_ = thread.fiber));
}

// Makes the thread that is to run next the current one.
Thread& RunningGrid::next() {
  Thread* const thread = scheduler_.next();
  if (!thread) fail("all threads wait: " + waits(), true);
  current_ = thread;
  thread->place = {};
  threadIdx = thread->index;
  blockIdx = thread->block_index;
  return *thread;
}

// Drops the stack of the thread without destructors, so that nothing there may own memory.
void RunningGrid::fail(std::string why, bool has_hung) {
  outcome_ = {std::move(why), has_hung};
  switch_fiber(*fiber_, host);
  std::abort();
}

void RunningGrid::release_if_complete(Barrier& barrier) {
  if (barrier.waiting.empty() || barrier.waiting.size() < barrier.live) return;
  for (Thread* thread : barrier.waiting) scheduler_.add(thread);
  barrier.waiting.clear();
}

void RunningGrid::release_if_complete(Warp& warp) {
  Barrier& barrier = warp.barrier;
  if (barrier.waiting.empty() || barrier.waiting.size() < barrier.live) return;
  if (warp.work) warp.work(warp.given.data());
  warp.given.fill(nullptr);
  release_if_complete(barrier);
}

void RunningGrid::leave(Thread& thread) {
  Block& block = *thread.block;
  Warp& warp = block.warp_of(thread);
  --warp.barrier.live;
  release_if_complete(warp);
  for (Barrier* barrier : {&block.all, block.cluster}) {
    --barrier->live;
    release_if_complete(*barrier);
  }
}

// A GPU lets threads meet that call a barrier in different places, but no kernel means them to. The
// lanes of an mma must all be at the same one (PTX ISA, "mma").
void RunningGrid::check_others_wait_here(const Barrier& barrier) {
  if (barrier.waiting.empty()) return;
  const Place &own = current_->place, &others = barrier.waiting.front()->place;
  if (own.wait != others.wait || own.line != others.line)
    fail("threads meet at different waits: " + waits(), false);
}

void RunningGrid::wait(Barrier& barrier, Place place) {
  current_->place = place;
  check_others_wait_here(barrier);
  scheduler_.note_progress();
  barrier.waiting.push_back(current_);
  release_if_complete(barrier);
  go_on();
}

void RunningGrid::do_together(void* own, Collective work, int wait, int line) {
  Thread& self = *current_;
  Warp& warp = self.block->warp_of(self);
  self.place = {"a function of the warp", wait, line};
  if (!warp.barrier.waiting.empty() && warp.work != work)
    fail("lanes of a warp are in different functions: " + waits(), false);
  check_others_wait_here(warp.barrier);
  scheduler_.note_progress();
  warp.work = work;
  warp.given[self.number % kWarpThreads] = own;
  warp.barrier.waiting.push_back(&self);
  release_if_complete(warp);
  go_on();
}

// The others run before the counter is read, so that a thread that polls it does not hold them up.
unsigned RunningGrid::load_acquire(const unsigned* counter, int wait) {
  Thread& self = *current_;
  self.place = {"a counter", wait};
  scheduler_.add_polling(&self);
  go_on();
  self.seen = scheduler_.changes();
  if (!is_left_out(wait)) self.block->memory.acquire();
  return *counter;
}

// Who waits where, of the first blocks: "block 0: 31 at a block's barrier, wait 2; ..."
std::string RunningGrid::waits() const {
  constexpr std::size_t kBlocksTold = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kBlocksTold, blocks_.size()); ++i) {
    std::map<std::string, int> counts;
    for (const Thread& thread : blocks_[i].threads)
      if (thread.place.what) ++counts[text_of(thread.place)];
    text += (i == 0 ? "block " : "; block ") + std::to_string(blocks_[i].index) + ":";
    if (counts.empty()) text += " no thread waits";
    for (const auto& [place, count] : counts) {
      if (place != counts.begin()->first) text += ",";
      text += " " + std::to_string(count) + " at " + place;
    }
  }
  return blocks_.size() > kBlocksTold ? text + "; and more blocks" : text;
}

Outcome run_grid(const Grid& grid, const std::function<void()>& body) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  RunningGrid grid_that_runs(grid, body);
  running = &grid_that_runs;
  blockDim = grid.threads;
  gridDim = grid.blocks;
  const Outcome outcome = grid_that_runs.run();
  running = nullptr;
  return outcome;
}

}  // namespace emulation
