#include "declaration/ops/rms_norm.h"
#include "kernels/rms_norm.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

// The arrays are x, weight and y.
void launch_rms_norm(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    with_wide_element<X>(call.array_dtype[1],
                         [&](auto weight) { launch_rows<RmsNorm<X, decltype(weight)>>(call); });
  });
}

}  // namespace
}  // namespace tensor_ops

DECLARE_OP(rms_norm, launch_rms_norm)
