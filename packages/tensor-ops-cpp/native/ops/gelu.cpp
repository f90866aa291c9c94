// gelu: x * Phi(x), or its tanh approximation.
#include "kernels/gelu.h"

#include "kernels/elementwise.h"
#include "op.h"

EXPORT_KERNELS(gelu, nanoseconds(0.30, 0.25, 0.31, 0.81), each_dtype<Unary<GeluTanh>::On>(),
               each_dtype<Unary<GeluErf>::On>())
