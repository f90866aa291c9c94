#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration silu{
    "silu",
    Walk::kElements,
    "Sigmoid linear unit (SiLU, swish), element by element.",
    "y = x / (1 + exp(-x))",
    {rows("x", "Input.")},
    {{"y", "The activations."}},
    "S. Elfwing, E. Uchibe and K. Doya, Sigmoid-weighted linear units for neural "
    "network function approximation in reinforcement learning, arXiv:1702.03118.",
};

}  // namespace tensor_ops::declarations
