// layer_norm_backward: the gradients of layer_norm with respect to its rows, its weight and its
// bias.
#include "kernels/norm_gradient.h"
#include "op.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

template <class Element, class Parameter>
using LayerNormBackward = NormGradient<Element, Parameter, Element, true, false>;

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL

EXPORT_KERNELS(layer_norm_backward, nanoseconds(0.40, 0.50, 0.50, 0.80),
               each_dtype_and_parameters<LayerNormBackward>())
