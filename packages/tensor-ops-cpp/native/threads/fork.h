// Functions that a process calls around a fork, where there is such a thing.
#pragma once

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace tensor_ops {

// Each may be null. False where they will not be called.
inline bool call_at_fork([[maybe_unused]] void (*before)(), [[maybe_unused]] void (*in_parent)(),
                         [[maybe_unused]] void (*in_child)()) {
#if defined(_WIN32)
  return true;
#else
  return pthread_atfork(before, in_parent, in_child) == 0;
#endif
}

}  // namespace tensor_ops
