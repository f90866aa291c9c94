#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration rms_norm_backward{
    "rms_norm_backward",
    Walk::kRowwise,
    "Gradients of the root-mean-square normalisation.",
    "s = 1 / sqrt(mean(x**2) + eps)\n"
    "    grad_x = s * (grad * weight - s * x * mean(grad * weight * s * x))\n"
    "    grad_weight = sum over all rows of grad * s * x",
    {rows("grad", "Gradient with respect to the result."), rows("x", "Input of the norm."),
     row("weight", "Scale of each element of a row."),
     non_negative("eps", 1e-6, "Added to the mean of squares.")},
    {{"grad_x", "The gradients of the rows."}, {"grad_weight", "That of the weight.", 2}},
    "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
};

}  // namespace tensor_ops::declarations
