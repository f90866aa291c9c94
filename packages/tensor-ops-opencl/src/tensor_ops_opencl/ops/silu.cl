// silu: x * sigmoid(x).
#include "op.clh"

static V silu(V x) {
  if (all(fabs(x) < ORDINARY_EXPONENT)) return quotient(x, 1 + exp_ordinary(-x, ALL(0)));
  return times_sigmoid(x, fabs(x), ALL(0));
}

#define STEP(i, count, u) put(silu(get(x + (i), count)), y + (i), count)
UNARY_KERNEL(STEP)
