#include "kernels/rms_norm.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

// Of x, weight, y.
void launch_rms_norm(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    with_wide_element<X>(call.array_dtype[1],
                         [&](auto weight) { launch_rows<RmsNorm<X, decltype(weight)>>(call); });
  });
}

}  // namespace

DECLARE_OP(rms_norm, launch_rms_norm,
           {
               "rms_norm",
               Walk::kRows,
               "Root-mean-square normalisation of the last axis.",
               "y = x * weight / sqrt(mean(x**2) + eps)",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                non_negative("eps", 1e-6, "Added to the mean of squares.")},
               {{"y", "The normalised rows."}},
               "B. Zhang and R. Sennrich, Root mean square layer normalization, arXiv:1910.07467.",
           })

}  // namespace tensor_ops
