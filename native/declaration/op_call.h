// A checked call of an op: no Python, only addresses, shapes and strides. The memory may be the
// host's or a device's.
#pragma once

#include <cstddef>

#include "declaration/declaration.h"
#include "declaration/dtype.h"

namespace tensor_ops {

struct Op;

// Shape and strides are the caller's, who keeps them as long as the call is made ready.
struct ArrayView {
  char* data;  // null for an optional array that was not given, as all the rest is 0
  DType dtype;
  int dims;
  const std::ptrdiff_t* shape;
  const std::ptrdiff_t* strides;  // bytes
  bool is_contiguous, is_given;

  std::size_t item_size() const { return kItemSizes[dtype]; }
  std::size_t size() const {
    std::size_t size = 1;
    for (int d = 0; d < dims; ++d) size *= static_cast<std::size_t>(shape[d]);
    return size;
  }
};

// The arrays are the op's array arguments in declaration order, then its outputs.
struct OpCall {
  const Op* op;
  int inputs;
  Kind kind[kMaxArrays];  // of the inputs
  ArrayView array[kMaxArrays];
  const double* scalars;
  std::size_t variant;  // the value of the op's choice or flag
};

}  // namespace tensor_ops
