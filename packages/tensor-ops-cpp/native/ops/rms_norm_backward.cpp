// rms_norm_backward: the gradients of rms_norm with respect to its rows and its weight.
#include "kernels/norm_gradient.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element, class Parameter>
using RmsNormBackward = NormGradient<Element, Parameter, Element, false, false>;

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(rms_norm_backward, nanoseconds(0.30, 0.40, 0.40, 0.60),
               each_dtype_and_parameters<RmsNormBackward>())
