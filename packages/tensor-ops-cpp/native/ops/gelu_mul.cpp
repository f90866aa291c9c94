// gelu_mul: gelu(gate) * up.
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/gelu.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_KERNELS(gelu_mul, each_dtype<Gated<GeluTanh>::On>(), each_dtype<Gated<GeluErf>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(gelu_mul, nanoseconds(0.33, 0.29, 0.34, 0.89),
           {
               "gelu_mul",
               Walk::kElements,
               "GELU of a gate times a second input (GeGLU), element by element.",
               "y = gelu(gate, approximate) * up",
               {rows("gate", "Input of the activation."), rows("up", "Factor."),
                choice("approximate", "tanh", "none", "Which of gelu's two formulas.")},
               {{"y", "The products."}},
               "N. Shazeer, GLU variants improve transformer, arXiv:2002.05202.",
           })

}  // namespace tensor_ops

#endif
