// Which thread of a grid runs next. Tested by packages/tensor-ops-cuda/tests/test_grid.py.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "threads.h"

namespace emulation {

enum class Order {
  kRandom,      // each that can run is as likely
  kFirstReady,  // whichever could run first: the order of the blocks and threads at the start
  // As kRandom, but one warp runs only when nothing else can, so that all others are ahead of it by
  // as much as the barriers allow. After a few rounds this is another warp.
  kWarpBehind,
};

// How many products tensor cores add at once, and how many bits they keep of these below the digits
// of float32: 16 and 2 on Hopper and Blackwell, 8 and 1 on Ampere and Ada (mma.cpp).
struct SumRule {
  int products = 16, extra_bits = 2;
};

// Choices of tests for all grids that run after them.
struct Choices {
  Order order = Order::kRandom;
  std::mt19937 random{20240229};
  int left_out = 0;  // the wait that does nothing; 0 for none
  SumRule sum_rule;
};
Choices& choices();

class Scheduler {
 public:
  // Forgets all threads; those of the blocks come by add().
  void begin(std::vector<Block>& blocks);
  // The thread can run.
  void add(Thread* thread);
  // The thread reads a counter: it runs when memory has changed since it last did so, or might
  // have.
  void add_polling(Thread* thread);
  // Memory that threads poll has changed.
  void memory_changed();
  std::uint64_t changes() const { return changes_; }
  // A thread has come further than to poll once more.
  void note_progress() { idle_looks_ = idle_seconds_ = 0; }

  // Null if all threads wait for each other.
  Thread* next();
  // Nanoseconds. While threads wait for each other, time passes in leaps, if they look at the
  // clock.
  std::uint64_t read_clock();

 private:
  bool find_more();
  void wake_polling();
  void choose_behind();

  std::vector<Thread*> ready_, polling_, behind_;
  std::size_t first_ready_ = 0;  // those of ready_ before it have run
  std::vector<Warp*> warps_;
  Warp* warp_behind_ = nullptr;
  std::uint64_t changes_ = 1, clock_ = 0;
  int idle_looks_ = 0, idle_seconds_ = 0;
  bool clock_was_read_ = false, was_overtaken_ = false;
};

}  // namespace emulation
