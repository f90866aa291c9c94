#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration silu_mul_backward{
    "silu_mul_backward",
    Walk::kElements,
    "Gradients of the SiLU of a gate times a second input (SwiGLU).",
    "grad_gate = grad * up * s * (1 + gate * (1 - s)), s = 1 / (1 + exp(-gate))\n"
    "    grad_up = grad * gate * s",
    {rows("grad", "Gradient with respect to the result."), rows("gate", "Input of the activation."),
     rows("up", "Factor.")},
    {{"grad_gate", "The gradients of gate."}, {"grad_up", "Those of up."}},
    "N. Shazeer, GLU variants improve transformer, arXiv:2002.05202.",
};

}  // namespace tensor_ops::declarations
