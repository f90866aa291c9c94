// gelu_mul: gelu(gate) * up.
#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "op.h"

EXPORT_KERNELS(gelu_mul, nanoseconds(0.33, 0.29, 0.34, 0.89), each_dtype<Gated<GeluTanh>::On>(),
               each_dtype<Gated<GeluErf>::On>())
