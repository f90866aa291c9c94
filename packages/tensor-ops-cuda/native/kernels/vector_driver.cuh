// The driver of ops that compute vectors of a row one by one, each by a thread.
//
// An op is a class derived from Arrays that is passed to the kernel by value; its vector(row,
// index) computes one vector of a row.
#pragma once

#include <cstdint>

#include "kernels/addresses.cuh"
#include "kernels/launch.cuh"

namespace tensor_ops {

constexpr int kVectorThreads = 256;

template <class Op>
__global__ void __launch_bounds__(kVectorThreads, 1)
    compute_vectors(const __grid_constant__ Op op, std::int64_t per_row) {
  const std::int64_t vectors = op.rows.count * per_row;
  const std::int64_t vector = std::int64_t{blockIdx.x} * kVectorThreads + threadIdx.x;
  if (vector >= vectors) return;
  const std::int64_t row = quotient_of(vector, per_row, vectors < kShortCount);
  op.vector(row, vector - row * per_row);
}

// Blocks whose threads take `each` vectors.
inline Grid vector_grid(std::int64_t vectors, int each = 1) {
  const std::int64_t of_block = std::int64_t{kVectorThreads} * each;
  return {static_cast<unsigned>((vectors + of_block - 1) / of_block), kVectorThreads};
}

template <class Op>
void launch_vectors(const Call& call, const Op& op, std::int64_t per_row) {
  launch(call.stream, vector_grid(call.rows.count * per_row), compute_vectors<Op>, op, per_row);
}

}  // namespace tensor_ops
