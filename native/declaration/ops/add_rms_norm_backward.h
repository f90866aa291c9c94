#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration add_rms_norm_backward{
    "add_rms_norm_backward",
    Walk::kRowwise,
    "Gradients of the residual addition with root-mean-square normalisation.",
    "s = 1 / sqrt(mean(h**2) + eps)\n"
    "    grad_sum = s * (grad * weight - s * h * mean(grad * weight * s * h)) + grad_h\n"
    "    grad_weight = sum over all rows of grad * s * h",
    {rows("grad", "Gradient with respect to the normalised rows."),
     wide_rows("grad_h", "Gradient with respect to the sum h."),
     wide_rows("h", "The sum, of grad_h's dtype."),
     row("weight", "Scale of each element of a row."),
     non_negative("eps", 1e-6, "Added to the mean of squares.")},
    {{"grad_sum", "The gradients of either term of the sum.", 2},
     {"grad_weight", "That of the weight.", 3}},
    "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
};

}  // namespace tensor_ops::declarations
