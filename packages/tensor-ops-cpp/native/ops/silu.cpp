// silu: x * sigmoid(x).
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/sigmoid.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_KERNELS(silu, each_dtype<Unary<Silu>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(silu, nanoseconds(0.19, 0.19, 0.24, 0.57),
           {
               "silu",
               Walk::kElements,
               "Sigmoid linear unit (SiLU, swish), element by element.",
               "y = x / (1 + exp(-x))",
               {rows("x", "Input.")},
               {{"y", "The activations."}},
               "S. Elfwing, E. Uchibe and K. Doya, Sigmoid-weighted linear units for neural "
               "network function approximation in reinforcement learning, arXiv:1702.03118.",
           })

}  // namespace tensor_ops

#endif
