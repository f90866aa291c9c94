// _exp: the exponential function, for the tests of its stated error (tests/test_exp.py).
#include "op.h"

#if KERNEL_PASS

#include "kernels/elementwise.h"
#include "kernels/exp.h"

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

EXPORT_KERNELS(_exp, each_dtype<Unary<Exp>::On>())

}  // namespace tensor_ops::TENSOR_OPS_LEVEL

#else

namespace tensor_ops::declarations {

const Declaration _exp{
    "_exp",
    Walk::kElements,
    "Exponential function, element by element.",
    "y = exp(x)",
    {rows("x", "Input.")},
    {{"y", "The exponentials."}},
    "Not part of the package's interface.",
};

}  // namespace tensor_ops::declarations

DECLARE_OP(_exp, nanoseconds(0.15, 0.17, 0.22, 0.47))

#endif
