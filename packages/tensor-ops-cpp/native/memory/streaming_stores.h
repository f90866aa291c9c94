// Stores that went past the caches.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace tensor_ops {

// Makes them visible before the stores that follow.
inline void finish_streaming_stores() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_sfence();
#endif
}

}  // namespace tensor_ops
