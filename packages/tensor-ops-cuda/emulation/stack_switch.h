// Tells AddressSanitizer, if it is on, of every switch to another stack: it would report accesses
// to a fiber's stack as errors.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulation {

struct StackBounds {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

#if defined(__SANITIZE_ADDRESS__)

// Before the switch; `kept` belongs to the stack that is left.
inline void leave_stack(void** kept, const StackBounds& next) {
  __sanitizer_start_switch_fiber(kept, next.bottom, next.bytes);
}
// After the switch, with what was kept when this stack was left; returns the bounds of the other
// one.
inline StackBounds enter_stack(void* kept) {
  StackBounds left;
  __sanitizer_finish_switch_fiber(kept, &left.bottom, &left.bytes);
  return left;
}

#else

inline void leave_stack(void**, const StackBounds&) {}
inline StackBounds enter_stack(void*) { return {}; }

#endif

}  // namespace emulation
