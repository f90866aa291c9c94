// silu_mul: silu(gate) * up.
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/sigmoid.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_KERNELS(silu_mul, each_dtype<Gated<Silu>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

#include "declaration/ops/silu_mul.h"

DECLARE_OP(silu_mul, nanoseconds(0.21, 0.23, 0.28, 0.66))

#endif
