#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration _exp{
    "_exp",
    Walk::kElements,
    "Exponential function, element by element.",
    "y = exp(x)",
    {rows("x", "Input.")},
    {{"y", "The exponentials."}},
    "Not part of the package's interface.",
};

}  // namespace tensor_ops::declarations
