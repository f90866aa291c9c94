// gelu: x * Phi(x), or its tanh approximation.
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/gelu.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_KERNELS(gelu, each_dtype<Unary<GeluTanh>::On>(), each_dtype<Unary<GeluErf>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

#include "declaration/ops/gelu.h"

DECLARE_OP(gelu, nanoseconds(0.30, 0.25, 0.31, 0.81))

#endif
