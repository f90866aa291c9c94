#include "kernels/elementwise.cuh"
#include "kernels/sigmoid.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

template <class Element>
struct SiluMul {
  using R = Real<Element>;
  using C = ExpConstants<R>;
  static __device__ __forceinline__ bool is_ordinary(R x, R up) {
    return magnitude(x) < C::kOrdinary && is_ordinary_factor(up);
  }
  static __device__ __forceinline__ R ordinary(R x, R up) {
    return ordinary_quotient<Element>(x * up, 1 + ordinary_exp<Element>(-x));
  }
  // Right also where silu(x) alone is no normal number.
  static __device__ __forceinline__ R anywhere(R x, R up) {
    return times_sigmoid_and(x, up, at_most(magnitude(x), -C::kDeepest), R{0});
  }
};

}  // namespace

DECLARE_OP(silu_mul, {
                         "silu_mul",
                         Walk::kElements,
                         "SiLU of a gate times a second input (SwiGLU), element by element.",
                         "y = gate / (1 + exp(-gate)) * up",
                         {rows("gate", "Input of the activation."), rows("up", "Factor.")},
                         {{"y", "The products."}},
                         "N. Shazeer, GLU variants improve transformer, arXiv:2002.05202.",
                         launch_elements<SiluMul, 2>,
                     })

}  // namespace tensor_ops
