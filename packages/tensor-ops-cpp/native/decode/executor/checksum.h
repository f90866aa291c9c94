// A number by which damage to kept weights is found, at the speed of the memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "declaration/shared.h"

namespace tensor_ops::decode {

// Every change of a single byte changes the number; another change leaves it as it was with a
// probability of about 2^-32. It is no cryptographic hash. It does not depend on the number of
// threads, and belongs to the layout of kept files: see kTileLayout.
TENSOR_OPS_SHARED std::uint64_t checksum(const unsigned char* first, std::size_t bytes,
                                         std::size_t threads);

}  // namespace tensor_ops::decode
