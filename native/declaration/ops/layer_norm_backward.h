#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration layer_norm_backward{
    "layer_norm_backward",
    Walk::kRowwise,
    "Gradients of the layer normalisation.",
    "s = 1 / sqrt(var(x) + eps)\n"
    "    z = s * (x - mean(x))\n"
    "    grad_x = s * (grad * weight - mean(grad * weight) - z * mean(grad * weight * z))\n"
    "    grad_weight = sum over all rows of grad * z\n"
    "    grad_bias = sum over all rows of grad",
    {rows("grad", "Gradient with respect to the result."), rows("x", "Input of the norm."),
     row("weight", "Scale of each element of a row."),
     non_negative("eps", 1e-5, "Added to the variance.")},
    {{"grad_x", "The gradients of the rows."},
     {"grad_weight", "That of the weight.", 2},
     {"grad_bias", "That of the bias.", 2}},
    "J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450.",
};

}  // namespace tensor_ops::declarations
