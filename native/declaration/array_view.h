// An array that was given for a call: no Python, only an address, a shape and strides.
#pragma once

#include <cstddef>

#include "declaration/dtype.h"

namespace tensor_ops {

struct ArrayView {
  char* data;
  DType dtype;  // kDTypes: not a supported one
  int dims;
  const std::ptrdiff_t* shape;
  const std::ptrdiff_t* strides;  // bytes
  bool is_contiguous;

  // The dtype must be a supported one.
  std::size_t item_size() const { return kItemSizes[dtype]; }
  std::size_t size() const {
    std::size_t size = 1;
    for (int d = 0; d < dims; ++d) size *= static_cast<std::size_t>(shape[d]);
    return size;
  }
  // The elements of the last axis; 1 where there is none.
  std::ptrdiff_t row_length() const { return dims ? shape[dims - 1] : 1; }
};

}  // namespace tensor_ops
