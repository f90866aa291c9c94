// silu: x * sigmoid(x).
#include "op.clh"

static V silu(V x) {
  const VI is_ordinary = fabs(x) < ORDINARY_EXPONENT;
  const V ordinary = quotient(x, 1 + exp_ordinary(-x, ALL(0)));
  if (all(is_ordinary)) return ordinary;
  return select(times_sigmoid(x, fabs(x), ALL(0)), ordinary, is_ordinary);
}

#define STEP(i, count, u) put(silu(get(x + (i), count)), y + (i), count)
UNARY_KERNEL(STEP)
