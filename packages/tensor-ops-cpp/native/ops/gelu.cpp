// gelu: x * Phi(x), or its tanh approximation.
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/gelu.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

EXPORT_KERNELS(gelu, each_dtype<Unary<GeluTanh>::On>(), each_dtype<Unary<GeluErf>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops {

DECLARE_OP(gelu, nanoseconds(0.30, 0.25, 0.31, 0.81),
           {
               "gelu",
               Walk::kElements,
               "Gaussian error linear unit, element by element.",
               "y = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))  (\"tanh\")\n"
               "    y = 0.5 * x * (1 + erf(x / sqrt(2)))  (\"none\")",
               {rows("x", "Input."),
                choice("approximate", "tanh", "none", "Which of the two formulas.")},
               {{"y", "The activations."}},
               "D. Hendrycks and K. Gimpel, Gaussian error linear units (GELUs), arXiv:1606.08415.",
           })

}  // namespace tensor_ops

#endif
