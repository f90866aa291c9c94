#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration softmax{
    "softmax",
    Walk::kRowwise,
    "Softmax of the scaled last axis, stable for any magnitude.",
    "y = exp(scale * x - max(scale * x)) / sum(exp(scale * x - max(scale * x)))",
    {rows("x", "Input."), scalar("scale", 1.0, "Multiplies x.")},
    {{"y", "The probabilities, which add up to 1 along each row."}},
    "J. S. Bridle, Probabilistic interpretation of feedforward classification "
    "network outputs, 1990.",
};

}  // namespace tensor_ops::declarations
