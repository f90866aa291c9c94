// The execution of a grid. Each of its threads is a fiber, and one fiber runs at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device.h"
#include "fiber.h"
#include "scheduler.h"
#include "threads.h"

namespace emulation {

class RunningGrid {
 public:
  RunningGrid(const Grid& grid, const std::function<void()>& body);
  Outcome run();
  // In the fiber of a thread.
  void run_threads();
  void wait(Barrier& barrier, Place place);
  void do_together(void* own, Collective work, int wait, int line);
  unsigned load_acquire(const unsigned* counter, int wait);
  [[noreturn]] void fail(std::string why, bool has_hung);

  Thread& current() { return *current_; }
  Block& block(unsigned rank) { return blocks_[rank]; }
  Scheduler& scheduler() { return scheduler_; }
  unsigned cluster_size() const { return grid_.cluster; }

 private:
  unsigned threads() const { return grid_.threads.x * grid_.threads.y * grid_.threads.z; }
  void prepare(Block& block, unsigned number);
  void number_threads(Block& block);
  void run_blocks(unsigned first);
  void release_if_complete(Barrier& barrier);
  void release_if_complete(Warp& warp);
  void check_others_wait_here(const Barrier& barrier);
  void leave(Thread& thread);
  void go_on();
  Thread& next();
  std::string waits() const;

  const Grid& grid_;
  const std::function<void()>& body_;
  const unsigned num_blocks_;
  std::vector<Block> blocks_;
  std::vector<Barrier> clusters_;
  Scheduler scheduler_;
  Thread* current_ = nullptr;
  Fiber* fiber_ = nullptr;  // that runs
  unsigned live_ = 0;
  Outcome outcome_;
};

// The grid of the calling thread; null outside of a kernel.
inline thread_local RunningGrid* running = nullptr;

}  // namespace emulation
