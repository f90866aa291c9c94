#include "kernels/elementwise.cuh"
#include "op.h"

namespace tensor_ops {
namespace {

template <class Element>
struct SquaredRelu {
  using R = Real<Element>;
  static DEVICE bool is_ordinary(R) { return true; }
  static DEVICE R ordinary(R x) {
    const R positive = x < R{0} ? R{0} : x;
    return positive * positive;
  }
  static DEVICE R general(R x) { return ordinary(x); }
};

}  // namespace

DECLARE_OP(squared_relu, (launch_elements<SquaredRelu, 1>),
           {
               "squared_relu",
               Walk::kElements,
               "Square of the rectified linear unit, element by element.",
               "y = max(x, 0)**2",
               {rows("x", "Input.")},
               {{"y", "The activations."}},
               "D. So et al., Primer: searching for efficient transformers for "
               "language modeling, arXiv:2109.08668.",
           })

}  // namespace tensor_ops
