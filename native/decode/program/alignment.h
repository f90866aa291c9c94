// The alignment of every piece of memory of an executor.
#pragma once

#include <cstddef>

namespace tensor_ops::decode {

// Rounds up to whole cache lines, which are as long as the longest vectors. Inlined, so that no
// code of one instruction-set level can be linked into another's.
__attribute__((always_inline)) constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace tensor_ops::decode
