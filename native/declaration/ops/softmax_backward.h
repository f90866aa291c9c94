#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration softmax_backward{
    "softmax_backward",
    Walk::kRowwise,
    "Gradient of the softmax of the scaled last axis.",
    "grad_x = scale * y * (grad - sum(grad * y))",
    {rows("grad", "Gradient with respect to the result."), rows("y", "Result of the softmax."),
     scalar("scale", 1.0, "What has multiplied x.")},
    {{"grad_x", "The gradients."}},
    "J. S. Bridle, Probabilistic interpretation of feedforward classification "
    "network outputs, 1990.",
};

}  // namespace tensor_ops::declarations
