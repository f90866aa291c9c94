// squared_relu: max(x, 0)^2.
#include "op.clh"

static V squared_relu(V x) {
  const V positive = choose(x < ALL(0), ALL(0), x);
  return positive * positive;
}

#define STEP(i, count, u) stream(squared_relu(get(x + (i), count)), y + (i), count)
UNARY_KERNEL(squared_relu)
