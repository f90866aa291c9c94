// silu_mul: silu(gate) * up.
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/sigmoid.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_KERNELS(silu_mul, each_dtype<Gated<Silu>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(silu_mul, nanoseconds(0.21, 0.23, 0.28, 0.66),
           {
               "silu_mul",
               Walk::kElements,
               "SiLU of a gate times a second input (SwiGLU), element by element.",
               "y = gate / (1 + exp(-gate)) * up",
               {rows("gate", "Input of the activation."), rows("up", "Factor.")},
               {{"y", "The products."}},
               "N. Shazeer, GLU variants improve transformer, arXiv:2002.05202.",
           })

}  // namespace tensor_ops

#endif
