#include "declaration/ops/gelu.h"
#include "kernels/elementwise.cuh"
#include "kernels/gelu.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

void launch_gelu(const Call& call) {
  call.variant == 0 ? launch_elements<TanhGelu, 1>(call) : launch_elements<NormalGelu, 1>(call);
}

}  // namespace
}  // namespace tensor_ops

DECLARE_OP(gelu, launch_gelu)
