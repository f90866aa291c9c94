// gelu_mul_backward: the gradients of gelu_mul with respect to gate and up.
#include "kernels/gated_derivative.h"
#include "kernels/gelu.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

using Tanh = GatedDerivative<GeluTanh, GeluTanhDerivative>;
using Erf = GatedDerivative<GeluErf, GeluErfDerivative>;

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(gelu_mul_backward, nanoseconds(0.70, 0.65, 0.70, 2.00), each_dtype<Tanh::On>(),
               each_dtype<Erf::On>())
