// What of the table the Python module gives to Python as well.
#pragma once

#include <string>

#include "declaration/shared.h"

namespace tensor_ops {

// What was compiled, as the table says it.
TENSOR_OPS_SHARED std::string configuration();

}  // namespace tensor_ops
