#include "declaration/ops/gelu_mul.h"
#include "kernels/elementwise.cuh"
#include "kernels/gelu.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

void launch_gelu_mul(const Call& call) {
  call.variant == 0 ? launch_elements<TanhGelu, 2>(call) : launch_elements<NormalGelu, 2>(call);
}

}  // namespace
}  // namespace tensor_ops

DECLARE_OP(gelu_mul, launch_gelu_mul)
