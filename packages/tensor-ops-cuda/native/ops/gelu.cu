#include "declaration/ops/gelu.h"
#include "kernels/elementwise.cuh"
#include "kernels/gelu.cuh"
#include "op.h"

DECLARE_OP(gelu, (launch_variants<TanhGelu, NormalGelu, 1>))
