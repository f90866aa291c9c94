#include "kernels/elementwise.cuh"
#include "kernels/gelu.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

template <class Element, template <class> class Gelu>
struct GeluMul {
  using R = Real<Element>;
  using G = Gelu<Element>;
  static __device__ __forceinline__ bool is_ordinary(R x, R up) {
    return G::is_ordinary_gate(x) && is_ordinary_factor(up);
  }
  static __device__ __forceinline__ R ordinary(R x, R up) { return G::ordinary(x, up); }
  // Right also where gelu(x) alone is no normal number.
  static __device__ __forceinline__ R anywhere(R x, R up) { return G::anywhere(x, up); }
};

template <class Element>
using TanhGeluMul = GeluMul<Element, TanhGelu>;
template <class Element>
using NormalGeluMul = GeluMul<Element, NormalGelu>;

void launch_gelu_mul(const Call& call) {
  call.variant == 0 ? launch_elements<TanhGeluMul, 2>(call)
                    : launch_elements<NormalGeluMul, 2>(call);
}

}  // namespace

DECLARE_OP(gelu_mul, {
                         "gelu_mul",
                         Walk::kElements,
                         "GELU of a gate times a second input (GeGLU), element by element.",
                         "y = gelu(gate, approximate) * up",
                         {rows("gate", "Input of the activation."), rows("up", "Factor."),
                          choice("approximate", "tanh", "none", "Which of gelu's two formulas.")},
                         {{"y", "The products."}},
                         "N. Shazeer, GLU variants improve transformer, arXiv:2002.05202.",
                         launch_gelu_mul,
                     })

}  // namespace tensor_ops
