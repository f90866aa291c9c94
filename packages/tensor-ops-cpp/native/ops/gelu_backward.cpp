// gelu_backward: grad times the derivative of gelu at x.
#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "op.h"

EXPORT_KERNELS(gelu_backward, nanoseconds(0.40, 0.40, 0.45, 1.20),
               each_dtype<ByDerivative<GeluTanhDerivative>::On>(),
               each_dtype<ByDerivative<GeluErfDerivative>::On>())
