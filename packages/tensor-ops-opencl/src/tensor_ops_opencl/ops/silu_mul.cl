// silu_mul: silu(gate) * up, right also where silu(gate) alone is no normal number.
#include "op.clh"

static V silu_mul(V x, V up) {
  const VI is_ordinary = (magnitude(x) < EXP_ORDINARY) & is_ordinary_factor(up);
  const V ordinary = quotient(x * up, 1 + exp_ordinary(-x));
  if (all_of(is_ordinary)) return ordinary;
  const V anywhere = times_sigmoid_and(x, up, at_most(magnitude(x), -EXP_DEEPEST), ALL(0));
  return choose(is_ordinary, ordinary, anywhere);
}

#define STEP(i, count, u) stream(silu_mul(get(gate + (i), count), get(up + (i), count)), y + (i), count)
BINARY_KERNEL(silu_mul)
