// gelu_mul: gelu(gate) * up, right also where gelu(gate) alone is no normal number.
#include "op.clh"

static V gelu_mul(V x, V up) {
  if (all(is_ordinary_gate(x) & is_ordinary_factor(up))) return gelu_and_ordinary(x, up);
  return gelu_and_anywhere(x, up);
}

#define STEP(i, count, u) put(gelu_mul(get(gate + (i), count), get(up + (i), count)), y + (i), count)
BINARY_KERNEL(STEP)
