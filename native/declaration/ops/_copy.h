#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration _copy{
    "_copy",
    Walk::kElements,
    "A copy, for the benchmarks.",
    "y = x",
    {rows("x", "Input.")},
    {{"y", "The copy."}},
    "Not part of the package's interface.",
};

}  // namespace tensor_ops::declarations
