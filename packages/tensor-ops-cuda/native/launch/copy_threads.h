// Threads that share copies between host memory.
#pragma once

#include <cstdint>
#include <functional>

namespace tensor_ops {

// Calls work(begin, end) for parts of [0, count) on this thread and others, and returns when all
// calls have. A part has at least `least` items. The work must not throw.
void run_in_parallel(std::int64_t count, std::int64_t least,
                     const std::function<void(std::int64_t, std::int64_t)>& work);

}  // namespace tensor_ops
