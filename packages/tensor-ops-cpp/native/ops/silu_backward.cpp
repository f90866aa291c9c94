// silu_backward: grad times the derivative of silu at x.
#include "kernels/elementwise.h"
#include "kernels/sigmoid.h"
#include "op.h"

EXPORT_KERNELS(silu_backward, nanoseconds(0.25, 0.27, 0.32, 0.75),
               each_dtype<ByDerivative<SiluDerivative>::On>())
