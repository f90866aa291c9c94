#include "kernels/elementwise.cuh"
#include "kernels/gelu.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

void launch_gelu_mul(const Call& call) {
  call.variant == 0 ? launch_elements<TanhGelu, 2>(call) : launch_elements<NormalGelu, 2>(call);
}

}  // namespace

DECLARE_OP(gelu_mul, launch_gelu_mul,
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
