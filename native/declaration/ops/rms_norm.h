#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration rms_norm{
    "rms_norm",
    Walk::kRowwise,
    "Root-mean-square normalisation of the last axis.",
    "y = x * weight / sqrt(mean(x**2) + eps)",
    {rows("x", "Input."), row("weight", "Scale of each element of a row."),
     non_negative("eps", 1e-6, "Added to the mean of squares.")},
    {{"y", "The normalised rows."}},
    "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
};

}  // namespace tensor_ops::declarations
