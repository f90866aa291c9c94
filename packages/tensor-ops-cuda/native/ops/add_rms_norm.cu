#include "kernels/rms.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

// Its name is this op's alone: GCC gives functions made from a template of an unnamed namespace
// external linkage.
template <class Element>
using AddRmsNormKernels = RmsKernels<Element, 2>;

// Of x, residual, weight, y and h.
void launch_add_rms_norm(const Call& call) { launch_rows<AddRmsNormKernels>(call, 5); }

}  // namespace

DECLARE_OP(add_rms_norm,
           {
               "add_rms_norm",
               Walk::kRows,
               "Residual addition, then root-mean-square normalisation of the last axis.",
               "h = x + residual\n    y = h * weight / sqrt(mean(h**2) + eps)",
               {rows("x", "Input."), rows("residual", "Added to x."),
                row("weight", "Scale of each element of a row."),
                non_negative("eps", 1e-6, "Added to the mean of squares.")},
               {{"y", "The normalised rows."}, {"h", "The sum."}},
               "y is computed from the sum before it is rounded to a half dtype.\n"
               "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
               launch_add_rms_norm,
           })

}  // namespace tensor_ops
