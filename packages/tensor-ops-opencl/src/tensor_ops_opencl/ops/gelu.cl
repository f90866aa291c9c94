// gelu: x times the normal distribution function at x, or its approximation by tanh.
#include "op.clh"
#include "gelu.clh"

static V formula(V x) {
  const VI is_ordinary = is_ordinary_gelu(x);
  const V ordinary = gelu_ordinary(x);
  return all_of(is_ordinary) ? ordinary : choose(is_ordinary, ordinary, gelu_anywhere(x));
}

#include "elements.clh"
