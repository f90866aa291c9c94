// silu: x * sigmoid(x).
#include "op.clh"
#include "exp.clh"

static V formula(V x) {
  const VI is_ordinary = magnitude(x) < EXP_ORDINARY;
  const V ordinary = quotient(x, 1 + exp_ordinary(-x));
  if (all_of(is_ordinary)) return ordinary;
  return choose(is_ordinary, ordinary, times_sigmoid(x, magnitude(x), ALL(0)));
}

#include "elements.clh"
