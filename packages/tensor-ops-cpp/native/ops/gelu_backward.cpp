// gelu_backward: grad times the derivative of gelu at x.
#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using Erf = ByDerivative<GeluErfDerivative>;
using Tanh = ByDerivative<GeluTanhDerivative>;

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(gelu_backward, nanoseconds(0.40, 0.40, 0.45, 1.20), each_dtype<Tanh::On>(),
               each_dtype<Erf::On>())
