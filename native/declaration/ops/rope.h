#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration rope{
    "rope",
    Walk::kRowwise,
    "Rotary position embedding of the last axis.",
    "y0 = a * cos - b * sin\n"
    "    y1 = b * cos + a * sin\n\n"
    "with the pairs (a, b) = (x[i], x[i + n/2]), or (x[2 i], x[2 i + 1]) if interleaved.",
    {rows("x", "Input; n must be even."), half_rows("cos", "Cosines of the angles."),
     half_rows("sin", "Sines of the angles."),
     keyword_flag("interleaved", "Rotate neighbours instead of the row's two halves.")},
    {{"y", "The rotated rows."}},
    "J. Su et al., RoFormer: enhanced transformer with rotary position embedding, "
    "arXiv:2104.09864.",
};

}  // namespace tensor_ops::declarations
