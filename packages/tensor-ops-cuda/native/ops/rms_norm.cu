#include "kernels/rms.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

// Its name is this op's alone: GCC gives functions made from a template of an unnamed namespace
// external linkage.
template <class Element>
using RmsNormKernels = RmsKernels<Element, 1>;

// Of x, weight, y.
void launch_rms_norm(const Call& call) { launch_rows<RmsNormKernels>(call, 3); }

}  // namespace

DECLARE_OP(rms_norm,
           {
               "rms_norm",
               Walk::kRows,
               "Root-mean-square normalisation of the last axis.",
               "y = x * weight / sqrt(mean(x**2) + eps)",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                non_negative("eps", 1e-6, "Added to the mean of squares.")},
               {{"y", "The normalised rows."}},
               "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
               launch_rms_norm,
           })

}  // namespace tensor_ops
