// The overlaps of an output with the other arrays: exactly the same view of a full-shape input is
// allowed, and nothing else. All arrays are of supported dtypes.
#pragma once

#include "declaration/array_view.h"
#include "declaration/shared.h"

namespace tensor_ops::overlap {

// Exact, unless the search takes too many steps, which arrays of a few axes never need: such arrays
// count as sharing.
TENSOR_OPS_SHARED bool may_share_memory(const ArrayView& a, const ArrayView& b);

TENSOR_OPS_SHARED bool is_same_view(const ArrayView& a, const ArrayView& b);

// Every axis, in order of stride, must step over all that the shorter strides reach. Layouts that
// fail this without two elements sharing memory exist, but nobody makes them to write into.
TENSOR_OPS_SHARED bool may_overlap_itself(const ArrayView& array);

}  // namespace tensor_ops::overlap
