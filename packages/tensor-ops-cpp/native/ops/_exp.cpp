// _exp: the exponential function, for the tests of its stated error (tests/test_exp.py).
#include "kernels/elementwise.h"
#include "kernels/exp.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

struct Exp {
  template <class C>
  static TENSOR_OPS_INLINE C apply(C x) {
    return scaled_exp(x).value();
  }
  template <class C>
  static constexpr C ordinary = ExpConstants<C>::ordinary;
  template <Digits digits, class V>
  static TENSOR_OPS_INLINE V apply_ordinary(V x) {
    return exp_of_negative<digits>(-x);
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(_exp, nanoseconds(0.15, 0.17, 0.22, 0.47), each_dtype<Unary<Exp>::On>())
