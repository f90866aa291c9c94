// The index of the largest number of a row, the first one of equals; -1 where a row with NaN, or
// with nothing but minus infinity, has none.
#pragma once

#include "kernels/memory.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

inline std::int32_t argmax(const float* x, std::size_t n) {
  Floats most = splat<Floats>(-__builtin_inff());
  auto is_nan = most != most;
  std::size_t i = 0;
  for (; i + kLanes<float> <= n; i += kLanes<float>) {
    const Floats value = load_vector<Floats>(x + i);
    is_nan |= value != value;
    most = larger(value, most);
  }
  float largest = -__builtin_inff();
  bool has_nan = false;
  for (; i < n; ++i) {
    has_nan |= x[i] != x[i];
    largest = x[i] > largest ? x[i] : largest;
  }
  for (std::size_t l = 0; l < kLanes<float>; ++l) {
    has_nan |= is_nan[l] != 0;
    largest = most[l] > largest ? most[l] : largest;
  }
  if (has_nan || largest == -__builtin_inff()) return -1;
  std::size_t index = 0;
  while (index + 1 < n && x[index] != largest) ++index;
  return static_cast<std::int32_t>(index);
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
