#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration gelu_mul{
    "gelu_mul",
    Walk::kElements,
    "GELU of a gate times a second input (GeGLU), element by element.",
    "y = gelu(gate, approximate) * up",
    {rows("gate", "Input of the activation."), rows("up", "Factor."),
     choice("approximate", "tanh", "none", "Which of gelu's two formulas.")},
    {{"y", "The products."}},
    "N. Shazeer, GLU variants improve transformer, arXiv:2002.05202.",
};

}  // namespace tensor_ops::declarations
