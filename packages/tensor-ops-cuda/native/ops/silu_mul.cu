#include "kernels/elementwise.cuh"
#include "kernels/sigmoid.cuh"
#include "op.h"

namespace tensor_ops {

DECLARE_OP(silu_mul, (launch_elements<Silu, 2>),
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
