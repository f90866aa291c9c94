#include "scheduler.h"

namespace emulation {
namespace {

// How often threads that poll look once more when nothing else can run. Memory may have changed
// although nobody said so, and a thread may poll several counters in turn.
constexpr int kIdleLooks = 8;
// How many seconds then pass, one for each look, before a grid counts as hung.
constexpr int kIdleSeconds = 1000;
// In how many rounds, on average, a warp is the one that is behind.
constexpr unsigned kRoundsBehind = 4;

unsigned random_below(std::size_t count) {
  return static_cast<unsigned>(choices().random() * std::uint64_t{count} >> 32);
}

}  // namespace

Choices& choices() {
  static Choices chosen;
  return chosen;
}

void Scheduler::begin(std::vector<Block>& blocks) {
  ready_.clear();
  first_ready_ = 0;
  polling_.clear();
  behind_.clear();
  warps_.clear();
  warp_behind_ = nullptr;
  note_progress();
  if (choices().order != Order::kWarpBehind) return;
  for (Block& block : blocks)
    for (Warp& warp : block.warps) warps_.push_back(&warp);
  choose_behind();
}

void Scheduler::choose_behind() { warp_behind_ = warps_[random_below(warps_.size())]; }

void Scheduler::add(Thread* thread) {
  if (warp_behind_ && &thread->block->warp_of(*thread) == warp_behind_)
    behind_.push_back(thread);
  else
    ready_.push_back(thread);
}

void Scheduler::add_polling(Thread* thread) {
  if (thread->seen != changes_) return add(thread);
  polling_.push_back(thread);
}

void Scheduler::memory_changed() {
  ++changes_;
  note_progress();
  wake_polling();
}

void Scheduler::wake_polling() {
  for (Thread* thread : polling_) add(thread);
  polling_.clear();
}

// Called when none is ready; whether any may be now.
bool Scheduler::find_more() {
  if (!behind_.empty()) {
    ready_.assign(behind_.begin(), behind_.end());
    behind_.clear();
    if (was_overtaken_ && random_below(kRoundsBehind) == 0) choose_behind();
    was_overtaken_ = false;
    return true;
  }
  if (polling_.empty()) return false;
  if (idle_looks_ < kIdleLooks) {
    ++idle_looks_;
  } else {
    if (!clock_was_read_ || idle_seconds_ == kIdleSeconds) return false;
    ++idle_seconds_;
    clock_ += 1'000'000'000;
    clock_was_read_ = false;
  }
  wake_polling();
  return true;
}

Thread* Scheduler::next() {
  while (first_ready_ == ready_.size()) {
    ready_.clear();
    first_ready_ = 0;
    if (!find_more()) return nullptr;
  }
  ++clock_;
  Thread* thread = ready_[first_ready_];
  if (choices().order == Order::kFirstReady) {
    ++first_ready_;
  } else {
    Thread*& chosen = ready_[first_ready_ + random_below(ready_.size() - first_ready_)];
    thread = chosen;
    chosen = ready_.back();
    ready_.pop_back();
  }
  if (warp_behind_) was_overtaken_ |= &thread->block->warp_of(*thread) != warp_behind_;
  return thread;
}

std::uint64_t Scheduler::read_clock() {
  clock_was_read_ = true;
  return clock_;
}

}  // namespace emulation
