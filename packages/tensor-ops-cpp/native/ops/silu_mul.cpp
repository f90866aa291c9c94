// silu_mul: silu(gate) * up.
#include "kernels/elementwise.h"
#include "kernels/sigmoid.h"
#include "op.h"

EXPORT_KERNELS(silu_mul, nanoseconds(0.21, 0.23, 0.28, 0.66), each_dtype<Gated<Silu>::On>())
