// The table of tensor_ops/decode.h, for a package that defines the functions of
// executor_factory.h.
#pragma once

#include "tensor_ops/decode.h"

namespace tensor_ops {

extern const tensor_ops_decode decode_interface;

}  // namespace tensor_ops
