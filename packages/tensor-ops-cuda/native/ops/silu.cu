#include "kernels/elementwise.cuh"
#include "kernels/sigmoid.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

template <class Element>
struct Silu {
  using R = Real<Element>;
  static __device__ __forceinline__ bool is_ordinary(R x) {
    return magnitude(x) < ExpConstants<R>::kOrdinary;
  }
  static __device__ __forceinline__ R ordinary(R x) {
    return ordinary_quotient<Element>(x, 1 + ordinary_exp<Element>(-x));
  }
  static __device__ __forceinline__ R anywhere(R x) { return times_sigmoid(x, magnitude(x), R{0}); }
};

}  // namespace

DECLARE_OP(silu, {
                     "silu",
                     Walk::kElements,
                     "Sigmoid linear unit (SiLU, swish), element by element.",
                     "y = x / (1 + exp(-x))",
                     {rows("x", "Input.")},
                     {{"y", "The activations."}},
                     "S. Elfwing, E. Uchibe and K. Doya, Sigmoid-weighted linear units for neural "
                     "network function approximation in reinforcement learning, arXiv:1702.03118.",
                     launch_elements<Silu, 1>,
                 })

}  // namespace tensor_ops
