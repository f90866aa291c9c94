// A checked call of an op, as a backend's library gets it: no Python, only addresses, shapes and
// strides. The memory may be the host's or a device's.
#pragma once

#include <cstddef>

#include "declaration/array_view.h"
#include "declaration/declaration.h"

namespace tensor_ops {

struct Op;

// All that it points to is the caller's, who keeps it as long as the call is made ready. The arrays
// are the op's array arguments in declaration order, null where not given, then its outputs.
struct OpCall {
  const Op* op;
  int inputs;
  const ParameterKind* kind;  // of the inputs
  const ArrayView* array[kMaxArrays];
  const double* scalars;
  std::size_t variant;  // the value of the op's choice or flag
};

}  // namespace tensor_ops
