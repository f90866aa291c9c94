#include "declaration/ops/silu.h"
#include "kernels/elementwise.cuh"
#include "kernels/sigmoid.cuh"
#include "op.h"

DECLARE_OP(silu, (launch_elements<Silu, 1>))
