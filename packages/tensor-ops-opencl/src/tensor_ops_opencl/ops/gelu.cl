// gelu: x times the normal distribution function at x, or its approximation by tanh.
#include "op.clh"

static V gelu(V x) {
  if (all(is_ordinary_gelu(x))) return gelu_ordinary(x);
  return gelu_anywhere(x);
}

#define STEP(i, count, u) put(gelu(get(x + (i), count)), y + (i), count)
UNARY_KERNEL(STEP)
