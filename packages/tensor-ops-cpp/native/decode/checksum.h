// A number by which damage to kept weights is found, at the speed of the memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "declaration/shared.h"

namespace tensor_ops::decode {

// Another value of one byte always gives another number; of other changes all but about one in 2^32
// do. It is no secret how to make bytes that have the same number. It does not depend on the
// threads, and what kept files have of it is part of their layout: see kTileLayout.
TENSOR_OPS_SHARED std::uint64_t checksum(const unsigned char* first, std::size_t bytes,
                                         std::size_t threads);

}  // namespace tensor_ops::decode
