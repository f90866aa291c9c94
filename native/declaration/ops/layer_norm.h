#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration layer_norm{
    "layer_norm",
    Walk::kRowwise,
    "Normalisation of the last axis to mean 0 and variance 1, scaled and shifted.",
    "y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias",
    {rows("x", "Input."), row("weight", "Scale of each element of a row."),
     optional_row("bias", "Added to each row."),
     non_negative("eps", 1e-5, "Added to the variance.")},
    {{"y", "The normalised rows."}},
    "J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450.",
};

}  // namespace tensor_ops::declarations
