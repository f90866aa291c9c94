// silu_mul: silu(gate) * up, right also where silu(gate) alone is subnormal or 0.
#include "op.clh"
#include "exp.clh"

static V formula(V gate, V up) {
  const VI is_ordinary = (magnitude(gate) < EXP_ORDINARY) & is_ordinary_factor(up);
  const V ordinary = quotient(gate * up, 1 + exp_ordinary(-gate));
  if (all_of(is_ordinary)) return ordinary;
  const V anywhere = times_sigmoid_and(gate, up, at_most(magnitude(gate), -EXP_DEEPEST), ALL(0));
  return choose(is_ordinary, ordinary, anywhere);
}

#define IS_BINARY
#include "elements.clh"
