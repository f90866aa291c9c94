#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration gelu_backward{
    "gelu_backward",
    Walk::kElements,
    "Gradient of the Gaussian error linear unit (GELU), element by element.",
    "'none': grad_x = grad * (Phi(x) + x * phi(x)), Phi and phi those of the normal distribution\n"
    "    'tanh': grad_x = grad * s * (1 + x * (c1 + 3 * c3 * x**2) * (1 - s)),\n"
    "            s = 1 / (1 + exp(-x * (c1 + c3 * x**2))), c1 = sqrt(8 / pi), c3 = 0.044715 * c1",
    {rows("grad", "Gradient with respect to the result."), rows("x", "Input of the activation."),
     choice("approximate", "tanh", "none", "The form that was computed.")},
    {{"grad_x", "The gradients."}},
    "D. Hendrycks and K. Gimpel, Gaussian error linear units (GELUs), arXiv:1606.08415.",
};

}  // namespace tensor_ops::declarations
