// gelu_mul: gelu(gate) * up, right also where gelu(gate) alone is subnormal or 0.
#include "op.clh"
#include "gelu.clh"

static V formula(V gate, V up) {
  const VI is_ordinary = is_ordinary_gate(gate) & is_ordinary_factor(up);
  const V ordinary = gelu_and_ordinary(gate, up);
  if (all_of(is_ordinary)) return ordinary;
  return choose(is_ordinary, ordinary, gelu_and_anywhere(gate, up));
}

#define IS_BINARY
#include "elements.clh"
