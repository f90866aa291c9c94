// add_rms_norm_backward: the gradients of add_rms_norm with respect to its sum and its weight.
#include "kernels/norm_gradient.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element, class Parameter, class Rows>
using AddRmsNormBackward = NormGradient<Element, Parameter, Rows, false, true>;

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(add_rms_norm_backward, nanoseconds(0.40, 0.50, 0.50, 0.80),
               each_dtype_parameters_and_rows<AddRmsNormBackward>())
