// The part of a causal convolution that one thread computes: some columns, of all tokens in their
// order, so that a token has the bits that it has alone.
#pragma once

#include "decode/executor/share.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The state of a request has the inputs of the last `kept` tokens, the oldest first.
class ShortConvolution {
 public:
  ShortConvolution(const decode::Share& share, std::size_t kept, const float* weight)
      : begin(share.begin_of(share.columns)),
        end(share.end_of(share.columns)),
        share_(share),
        kept_(kept),
        weight_(weight) {}

  // Calls put(i, sum) with the sum of each column of a token, whose input is input_of(i).
  template <class InputOf, class Put>
  TENSOR_OPS_INLINE void run(std::size_t token, InputOf input_of, Put put) const {
    const std::size_t columns = share_.columns;
    const float* const before = share_.state_before(token);
    float* const after = share_.state_after(token);
    for (std::size_t i = begin; i < end; ++i) {
      const float* const weight = weight_ + i * (kept_ + 1);
      float sum = 0;
      for (std::size_t k = 0; k < kept_; ++k) {
        const float row = before ? before[k * columns + i] : 0;
        sum += weight[k] * row;
        if (k > 0) after[(k - 1) * columns + i] = row;
      }
      const float newest = input_of(i);
      after[(kept_ - 1) * columns + i] = newest;
      put(i, sum + weight[kept_] * newest);
    }
  }

  const std::size_t begin, end;  // columns

 private:
  const decode::Share& share_;
  const std::size_t kept_;
  const float* const weight_;
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
