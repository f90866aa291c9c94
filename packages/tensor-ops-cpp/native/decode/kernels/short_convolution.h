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

  // Calls put(i, sum) with the sum of each column of a token, whose input is input_of(i). It takes
  // several columns at once of convolutions that models have.
  template <class InputOf, class Put>
  TENSOR_OPS_INLINE void run(std::size_t token, InputOf input_of, Put put) const {
    const float* const before = share_.state_before(token);
    float* const after = share_.state_after(token);
    switch (kept_) {
      case 2:
        return columns<2>(before, after, input_of, put);
      case 3:
        return columns<3>(before, after, input_of, put);
    }
    for (std::size_t i = begin; i < end; ++i) column(kept_, before, after, i, input_of, put);
  }

  const std::size_t begin, end;  // columns

 private:
  template <std::size_t kept, class InputOf, class Put>
  TENSOR_OPS_INLINE void columns(const float* before, float* after, InputOf input_of,
                                 Put put) const {
    if (before) {
#pragma omp simd
      for (std::size_t i = begin; i < end; ++i) column(kept, before, after, i, input_of, put);
    } else {
#pragma omp simd
      for (std::size_t i = begin; i < end; ++i)
        column(kept, static_cast<const float*>(nullptr), after, i, input_of, put);
    }
  }

  template <class InputOf, class Put>
  TENSOR_OPS_INLINE void column(std::size_t kept, const float* before, float* after, std::size_t i,
                                InputOf input_of, Put put) const {
    const std::size_t stride = share_.columns;
    const float* const weight = weight_ + i * (kept + 1);
    float sum = 0;
    for (std::size_t k = 0; k < kept; ++k) {
      const float row = before ? before[k * stride + i] : 0;
      sum += weight[k] * row;
      if (k > 0) after[(k - 1) * stride + i] = row;
    }
    const float newest = input_of(i);
    after[(kept - 1) * stride + i] = newest;
    put(i, sum + weight[kept] * newest);
  }

  const decode::Share& share_;
  const std::size_t kept_;
  const float* const weight_;
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
