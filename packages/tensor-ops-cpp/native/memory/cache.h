// The size of the caches, and from which size on a call writes its results past them.
#pragma once

#include <cstddef>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

#include "declaration/shared.h"

namespace tensor_ops {

// Bytes of the last-level caches of the CPUs in the process's affinity mask; a modest guess where
// the system does not say.
TENSOR_OPS_SHARED std::size_t cache_size();

// A call that reads and writes this many bytes, or half as many again, writes its results past the
// caches. It is cache_size() unless it was set.
TENSOR_OPS_SHARED std::size_t streaming_threshold();
// 0: back to the measured one.
TENSOR_OPS_SHARED void set_streaming_threshold(std::size_t bytes);

// Makes stores that went past the caches visible before the stores that follow.
inline void finish_streaming_stores() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_sfence();
#endif
}

}  // namespace tensor_ops
