// The token of the largest logit.
#pragma once

#include <climits>

#include "decode/kernels/ring.cuh"

namespace tensor_ops::decode {

// A logit and its token. NaN compares greater than every logit, and has the token -1.
struct Best {
  float logit = -INFINITY;
  int token = INT_MAX;  // of all that are minus infinity, this

  DEVICE void consider(float its_logit, int its_token) {
    if (its_logit != its_logit) return consider({INFINITY, -1});
    if (its_logit > -INFINITY) consider({its_logit, its_token});
  }
  // The lower token wins among equal logits.
  DEVICE void consider(const Best& other) {
    if (other.logit > logit || (other.logit == logit && other.token < token)) *this = other;
  }
  DEVICE int chosen() const { return token == INT_MAX ? -1 : token; }
};

DEVICE Best best_of_lanes(Best best, int first_mask, int end_mask) {
  for (int mask = first_mask; mask < end_mask; mask *= 2) {
    Best other;
    other.logit = __shfl_xor_sync(~0u, best.logit, mask);
    other.token = __shfl_xor_sync(~0u, best.token, mask);
    best.consider(other);
  }
  return best;
}

}  // namespace tensor_ops::decode
