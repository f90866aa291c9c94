// Rows of float32 through the kernels of the ops, which nodes are made of.
#pragma once

#include "kernels/arithmetic.h"
#include "launch/run.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {

extern const KernelTable rms_norm_kernels, layer_norm_kernels, silu_mul_kernels, gelu_mul_kernels,
    rope_kernels, softmax_kernels;

namespace {

// Rows of an array, `stride` floats apart; 0 for one row that is used again and again.
struct OpRows {
  const float* first;
  std::size_t stride;
};

// An op on its arrays, the output last; the variant is the index of its choice or flag.
template <std::size_t count>
TENSOR_OPS_INLINE void run_op(const KernelTable& op, std::size_t variant,
                              const OpRows (&arrays)[count], std::size_t rows, std::size_t n,
                              double scalar = 0) {
  char* data[count];
  std::ptrdiff_t stride[count];
  for (std::size_t k = 0; k < count; ++k) {
    data[k] = reinterpret_cast<char*>(const_cast<float*>(arrays[k].first));
    stride[k] = static_cast<std::ptrdiff_t>(arrays[k].stride * sizeof(float));
  }
  op.variant[variant].of[kOneDType][kFloat32].run({data, stride, rows, n, &scalar, false});
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
