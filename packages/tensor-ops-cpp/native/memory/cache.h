// The cache that the process's CPUs have, and what is too large for it.
#pragma once

#include <cstddef>

#include "declaration/shared.h"

namespace tensor_ops {

// Bytes of the last-level caches of the CPUs in the process's affinity mask; a modest guess where
// the system does not say.
TENSOR_OPS_SHARED std::size_t cache_size();

// From this many bytes that a call reads and writes on, or half as many again, results are written
// past the caches: cache_size(), or what was set.
TENSOR_OPS_SHARED std::size_t streaming_threshold();
// 0: back to the measured one.
TENSOR_OPS_SHARED void set_streaming_threshold(std::size_t bytes);

}  // namespace tensor_ops
