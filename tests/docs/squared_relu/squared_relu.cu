#include "declaration/ops/squared_relu.h"
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
}  // namespace tensor_ops

DECLARE_OP(squared_relu, (launch_elements<SquaredRelu, 1>))
