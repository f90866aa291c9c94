#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration silu_mul{
    "silu_mul",
    Walk::kElements,
    "SiLU of a gate times a second input (SwiGLU), element by element.",
    "y = gate / (1 + exp(-gate)) * up",
    {rows("gate", "Input of the activation."), rows("up", "Factor.")},
    {{"y", "The products."}},
    "N. Shazeer, GLU variants improve transformer, arXiv:2002.05202.",
};

}  // namespace tensor_ops::declarations
