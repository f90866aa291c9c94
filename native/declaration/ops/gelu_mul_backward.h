#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration gelu_mul_backward{
    "gelu_mul_backward",
    Walk::kElements,
    "Gradients of the GELU of a gate times a second input (GeGLU).",
    "grad_gate = grad * up * gelu'(gate), the derivative of gelu\n"
    "    grad_up = grad * gelu(gate, approximate)",
    {rows("grad", "Gradient with respect to the result."), rows("gate", "Input of the activation."),
     rows("up", "Factor."), choice("approximate", "tanh", "none", "Which of gelu's two formulas.")},
    {{"grad_gate", "The gradients of gate."}, {"grad_up", "Those of up."}},
    "N. Shazeer, GLU variants improve transformer, arXiv:2002.05202.",
};

}  // namespace tensor_ops::declarations
