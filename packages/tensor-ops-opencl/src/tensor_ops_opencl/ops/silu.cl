// silu: x * sigmoid(x).
#include "op.clh"

static V silu(V x) {
  const VI is_ordinary = magnitude(x) < EXP_ORDINARY;
  const V ordinary = quotient(x, 1 + exp_ordinary(-x));
  if (all_of(is_ordinary)) return ordinary;
  return choose(is_ordinary, ordinary, times_sigmoid(x, magnitude(x), ALL(0)));
}

#define STEP(i, count, u) stream(silu(get(x + (i), count)), y + (i), count)
UNARY_KERNEL(silu)
