#pragma once

#include "declaration/declaration.h"

namespace tensor_ops::declarations {

const Declaration add_rms_norm{
    "add_rms_norm",
    Walk::kRowwise,
    "Residual addition, then root-mean-square normalisation of the last axis.",
    "h = x + residual\n    y = h * weight / sqrt(mean(h**2) + eps)",
    {rows("x", "Input."), wide_rows("residual", "Added to x."),
     row("weight", "Scale of each element of a row."),
     non_negative("eps", 1e-6, "Added to the mean of squares.")},
    {{"y", "The normalised rows."}, {"h", "The sum.", 1}},
    "y is computed from the sum before it is rounded to a half dtype.\n"
    "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
};

}  // namespace tensor_ops::declarations
