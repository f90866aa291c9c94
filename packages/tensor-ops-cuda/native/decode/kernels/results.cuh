// Stores the sums of a product as its results.
#pragma once

#include "decode/kernels/block.cuh"
#include "kernels/rope.cuh"
#include "kernels/sigmoid.cuh"
#include "product_files.cuh"

namespace tensor_ops::decode {

// A pair of a query, key or value, the first two rotated.
DEVICE void store_rotated(const Steps& steps, const DevicePhase& phase, const int* positions,
                          int token, int row, float a, float b) {
  const Attention& attention = phase.attention;
  const int size = attention.head_size, head = row / size, d = row % size;
  const int keys = attention.heads, values = keys + attention.kv_heads;
  const int position = positions[token];
  if (head < values && d / 2 < attention.rotated_pairs) {
    const std::int64_t angle =
        static_cast<std::int64_t>(position) * attention.rotated_pairs + d / 2;
    const auto pair =
        rotated_in_range<float, float>(a, b, attention.cos[angle], attention.sin[angle]);
    a = pair.a;
    b = pair.b;
  }
  if (head < keys)
    return publish(reinterpret_cast<float2*>(attention.queries + (token * keys + head) * size + d),
                   float2{a, b});
  const int kv_head = head < values ? head - keys : head - values;
  const std::int64_t at = d + cache_place(attention, steps.page_table, steps.pages_per_request,
                                          steps.slots[token], kv_head, position);
  void* const to = head < values ? attention.keys : attention.values;
  if (attention.is_half) {
    const Packed<Float16, 2> pair{{rounded_to<Float16>(a), rounded_to<Float16>(b)}};
    publish(reinterpret_cast<Packed<Float16, 2>*>(static_cast<Float16*>(to) + at), pair);
  } else {
    publish(reinterpret_cast<float2*>(static_cast<float*>(to) + at), float2{a, b});
  }
}

DEVICE float silu_times(float gate, float up) {
  using Op = Silu<float>;
  return Op::is_ordinary(gate, up) ? Op::ordinary(gate, up) : Op::general(gate, up);
}

DEVICE float result_of(const DevicePhase& phase, float sum) {
  int kind = 0;
#define TENSOR_OPS_RETURN_RESULT(name) \
  if (phase.product == kind++) return name##_result(phase, sum);
  TENSOR_OPS_FOR_EACH_PRODUCT(TENSOR_OPS_RETURN_RESULT)
#undef TENSOR_OPS_RETURN_RESULT
  return sum;
}

// Stores the sums of two rows, of which the first is even.
template <class Kernel>
DEVICE void store_pair(Block<Kernel>& block, const DevicePhase& phase, int token, int row, float a,
                       float b) {
  a = result_of(phase, a);
  b = result_of(phase, b);
  switch (phase.result) {
    case DevicePhase::kRotated:
      return store_rotated(block.steps, phase, block.memory.positions, token, row, a, b);
    case DevicePhase::kGated:
      return publish(phase.y + static_cast<std::int64_t>(token) * (phase.rows / 2) + row / 2,
                     silu_times(a, b));
    default:
      break;
  }
  const float pair[2] = {a, b};
  const std::int64_t at = static_cast<std::int64_t>(token) * phase.rows + row;
  const float* residual = phase.residual;
  if (residual != nullptr)
    residual += static_cast<std::int64_t>(row_in(block.steps, phase.residual_is_selected, token)) *
                    phase.rows +
                row;
  for (int i = 0; i < 2 && row + i < phase.rows; ++i) {
    publish(phase.y + at + i, residual == nullptr ? pair[i] : pair[i] + observe(residual + i));
    if (phase.result == DevicePhase::kLogits) block.best.consider(pair[i], row + i);
  }
}

}  // namespace tensor_ops::decode
