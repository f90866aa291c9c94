// silu_mul_backward: the gradients of silu_mul with respect to gate and up.
#include "kernels/gated_derivative.h"
#include "kernels/sigmoid.h"
#include "op.h"

EXPORT_KERNELS(silu_mul_backward, nanoseconds(0.45, 0.45, 0.50, 1.40),
               each_dtype<GatedDerivative<Silu, SiluDerivative>::On>())
