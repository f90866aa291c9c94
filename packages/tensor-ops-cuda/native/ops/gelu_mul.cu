#include "declaration/ops/gelu_mul.h"
#include "kernels/elementwise.cuh"
#include "kernels/gelu.cuh"
#include "op.h"

DECLARE_OP(gelu_mul, (launch_variants<TanhGelu, NormalGelu, 2>))
