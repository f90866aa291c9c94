// What every piece of memory of an executor is aligned to.
#pragma once

#include <cstddef>

namespace tensor_ops::decode {

// The next multiple of what vectors and cache lines want. Inlined, so that no code of one
// instruction-set level can be linked into another's.
__attribute__((always_inline)) constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace tensor_ops::decode
