// Stacks that the threads of a kernel run on, and the switch from one to another.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <setjmp.h>
#include <ucontext.h>
#endif

namespace emulation {

// A stack of its own, on which a function runs that never returns. The page below the stack cannot
// be written to, so that a kernel whose variables need more room ends with a signal.
class Fiber {
 public:
  // The stack that the caller runs on.
  Fiber() = default;
  explicit Fiber(void (*main)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Drops what runs on the stack: the next switch to it begins main() anew.
  void restart();

 private:
  friend void switch_fiber(Fiber& from, Fiber& to);
  friend void begin_fiber();

  void (*main_)() = nullptr;
  char* memory_ = nullptr;
#if defined(__x86_64__)
  void* top_ = nullptr;  // of the stack while another one is in use
#else
  ucontext_t start_;
  jmp_buf at_;
  bool has_started_ = false;
#endif
  // Arguments of AddressSanitizer's calls around a switch.
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
  void* kept_ = nullptr;
};

// Leaves `from`, which runs, and returns when another fiber switches back to it.
void switch_fiber(Fiber& from, Fiber& to);

}  // namespace emulation
