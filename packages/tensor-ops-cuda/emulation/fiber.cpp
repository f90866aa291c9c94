#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Keeps on the stack what a function has to preserve, stores its top, and goes on with another
// stack. Kernels whose lanes exchange values do little else, and setjmp() and longjmp() take
// longer. It is no function with inline assembly, because the compiler would see which registers
// that one changes, and keep values in the others.
extern "C" __attribute__((visibility("hidden"))) void emulation_switch_stack(void** top,
                                                                             void* next_top);
asm(".text\n"
    ".globl emulation_switch_stack\n"
    ".hidden emulation_switch_stack\n"
    ".type emulation_switch_stack, @function\n"
    "emulation_switch_stack:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size emulation_switch_stack, .-emulation_switch_stack\n");
#endif

namespace emulation {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 256 * 1024;  // variables have guard zones around them
#else
constexpr std::size_t kStackBytes = 64 * 1024;
#endif

thread_local Fiber *left_fiber, *entered_fiber;  // by the last switch

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

// The first function on a new stack.
void begin_fiber() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &left_fiber->bottom_, &left_fiber->bytes_);
#endif
  entered_fiber->main_();
}

void switch_fiber(Fiber& from, Fiber& to) {
  left_fiber = &from;
  entered_fiber = &to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.kept_, to.bottom_, to.bytes_);
#endif
#if defined(__x86_64__)
  emulation_switch_stack(&from.top_, to.top_);
#else
  from.has_started_ = true;
  if (_setjmp(from.at_) == 0) {
    if (to.has_started_) _longjmp(to.at_, 1);
    setcontext(&to.start_);
  }
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.kept_, &left_fiber->bottom_, &left_fiber->bytes_);
#endif
}

Fiber::Fiber(void (*main)()) : main_(main), bytes_(kStackBytes) {
  const std::size_t guard = page_bytes();
  void* const memory = mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  mprotect(memory_, guard, PROT_NONE);
  bottom_ = memory_ + guard;
  restart();
}

Fiber::~Fiber() {
  if (memory_) munmap(memory_, page_bytes() + kStackBytes);
}

void Fiber::restart() {
  char* const bottom = memory_ + page_bytes();
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(bottom, kStackBytes);
#endif
#if defined(__x86_64__)
  auto** top = reinterpret_cast<void**>(bottom + kStackBytes);
  *--top = nullptr;  // where a caller's address would be, so that the stack is aligned as in a call
  *--top = reinterpret_cast<void*>(begin_fiber);
  top_ = top - 6;  // the registers that emulation_switch_stack() takes
#else
  getcontext(&start_);
  start_.uc_stack.ss_sp = bottom;
  start_.uc_stack.ss_size = kStackBytes;
  makecontext(&start_, begin_fiber, 0);
  has_started_ = false;
#endif
}

}  // namespace emulation
