// gelu_mul: gelu(gate) * up.
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/gelu.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_KERNELS(gelu_mul, each_dtype<Gated<GeluTanh>::On>(), each_dtype<Gated<GeluErf>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

#include "declaration/ops/gelu_mul.h"

DECLARE_OP(gelu_mul, nanoseconds(0.33, 0.29, 0.34, 0.89))

#endif
