// The addresses of elements in device memory: a GPU reads and writes none across their boundaries.
#pragma once

#include <cstdint>

#include "declaration/dtype.h"
#include "declaration/errors.h"

namespace tensor_ops {

// Throws ValueError where an element of the array does not lie at a multiple of its size.
// checks/array_checks.h says what an Array is. An unsupported dtype is left to the checks.
template <class Array>
void require_alignment(const char* op, const char* name, const Array& array) {
  if (array.dtype == kDTypes) return;
  const auto item = static_cast<std::int64_t>(kItemSizes[array.dtype]);
  bool is_aligned = reinterpret_cast<std::uintptr_t>(array.data) % kItemSizes[array.dtype] == 0;
  for (int d = 0; is_aligned && d < array.dims; ++d)
    is_aligned = array.strides[d] % item == 0 || array.shape[d] < 2;
  if (!is_aligned)
    throw ValueError(text(op, ": ", name, "'s elements do not lie at multiples of their ", item,
                          " bytes; ", array.is_output ? "give an array whose do" : "pass a copy"));
}

}  // namespace tensor_ops
