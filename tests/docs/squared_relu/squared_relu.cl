// squared_relu: max(x, 0)^2.
#include "op.clh"

static V formula(V x) {
  const V positive = choose(x < ALL(0), ALL(0), x);
  return positive * positive;
}

#include "elements.clh"
