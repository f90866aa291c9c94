// gelu_mul: gelu(gate) * up, right also where gelu(gate) alone is no normal number.
#include "op.clh"

static V gelu_mul(V x, V up) {
  const VI is_ordinary = is_ordinary_gate(x) & is_ordinary_factor(up);
  const V ordinary = gelu_and_ordinary(x, up);
  return all_of(is_ordinary) ? ordinary : choose(is_ordinary, ordinary, gelu_and_anywhere(x, up));
}

#define STEP(i, count, u) stream(gelu_mul(get(gate + (i), count), get(up + (i), count)), y + (i), count)
BINARY_KERNEL(gelu_mul)
