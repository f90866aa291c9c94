#include "declaration/ops/silu_mul.h"
#include "kernels/elementwise.cuh"
#include "kernels/sigmoid.cuh"
#include "op.h"

DECLARE_OP(silu_mul, (launch_elements<Silu, 2>))
