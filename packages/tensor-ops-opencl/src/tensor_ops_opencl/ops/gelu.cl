// gelu: x times the normal distribution function at x, or its approximation by tanh.
#include "op.clh"

static V gelu(V x) {
  const VI is_ordinary = is_ordinary_gelu(x);
  const V ordinary = gelu_ordinary(x);
  return all_of(is_ordinary) ? ordinary : choose(is_ordinary, ordinary, gelu_anywhere(x));
}

#define STEP(i, count, u) stream(gelu(get(x + (i), count)), y + (i), count)
UNARY_KERNEL(gelu)
