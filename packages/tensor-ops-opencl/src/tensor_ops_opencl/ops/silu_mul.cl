// silu_mul: silu(gate) * up, right also where silu(gate) alone is no normal number.
#include "op.clh"

static V silu_mul(V x, V up) {
  if (all((fabs(x) < ORDINARY_EXPONENT) & is_ordinary_factor(up)))
    return quotient(x * up, 1 + exp_ordinary(-x, ALL(0)));
  return times_sigmoid_and(x, up, at_most(fabs(x), -DEEPEST), ALL(0));
}

#define STEP(i, count, u) put(silu_mul(get(gate + (i), count), get(up + (i), count)), y + (i), count)
BINARY_KERNEL(STEP)
