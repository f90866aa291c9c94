// Whether two views share an element, of host or device memory.
#pragma once

#include "arrays/array.h"

namespace tensor_ops {

// Exact for as many steps as a search may take, which views of a few axes never need; what takes
// longer counts as sharing.
bool may_share_memory(const View& a, const View& b);

}  // namespace tensor_ops
