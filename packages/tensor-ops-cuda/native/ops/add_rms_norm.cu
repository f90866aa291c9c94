#include "declaration/ops/add_rms_norm.h"
#include "kernels/rms_norm.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

// The arrays are x, residual, weight, y and h.
void launch_add_rms_norm(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    with_wide_element<X>(call.array_dtype[1], [&](auto residual) {
      with_wide_element<X>(call.array_dtype[2], [&](auto weight) {
        launch_rows<RmsNorm<X, decltype(weight), decltype(residual)>>(call);
      });
    });
  });
}

}  // namespace
}  // namespace tensor_ops

DECLARE_OP(add_rms_norm, launch_add_rms_norm)
