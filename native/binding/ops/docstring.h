// An op's docstring, in numpydoc form, from its declaration.
#pragma once

#include <string>

#include "declaration/declaration.h"

namespace tensor_ops {

// Starts with the signature line that CPython turns into __text_signature__.
std::string docstring(const Declaration& op);

}  // namespace tensor_ops
