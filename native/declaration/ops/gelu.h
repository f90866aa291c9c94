#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration gelu{
    "gelu",
    Walk::kElements,
    "Gaussian error linear unit, element by element.",
    "y = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))  (\"tanh\")\n"
    "    y = 0.5 * x * (1 + erf(x / sqrt(2)))  (\"none\")",
    {rows("x", "Input."), choice("approximate", "tanh", "none", "Which of the two formulas.")},
    {{"y", "The activations."}},
    "D. Hendrycks and K. Gimpel, Gaussian error linear units (GELUs), arXiv:1606.08415.",
};

}  // namespace tensor_ops::declarations
