// The memory that the result pool may keep, before a call sets another limit.
#pragma once

#include <cstdint>
#include <string>

#include "declaration/shared.h"

namespace tensor_ops {

struct PoolLimit {
  std::uint64_t bytes;
  std::string problem;  // why TENSOR_OPS_CPP_POOL_LIMIT was not taken; empty where nothing is wrong
};

// By TENSOR_OPS_CPP_POOL_LIMIT, else a sixteenth of the memory that the process may use, at most
// 4 GiB.
TENSOR_OPS_SHARED const PoolLimit& first_pool_limit();

}  // namespace tensor_ops
