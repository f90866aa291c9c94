// silu: x * sigmoid(x).
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/sigmoid.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_KERNELS(silu, each_dtype<Unary<Silu>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

#include "declaration/ops/silu.h"

DECLARE_OP(silu, nanoseconds(0.19, 0.19, 0.24, 0.57))

#endif
