#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration silu_backward{
    "silu_backward",
    Walk::kElements,
    "Gradient of the sigmoid linear unit (SiLU), element by element.",
    "grad_x = grad * s * (1 + x * (1 - s)), s = 1 / (1 + exp(-x))",
    {rows("grad", "Gradient with respect to the result."), rows("x", "Input of the activation.")},
    {{"grad_x", "The gradients."}},
    "S. Elfwing, E. Uchibe and K. Doya, Sigmoid-weighted linear units for neural "
    "network function approximation in reinforcement learning, arXiv:1702.03118.",
};

}  // namespace tensor_ops::declarations
