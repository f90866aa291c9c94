// Sorting the positional and keyword arguments of a call by the op's parameters, as Python would.
#pragma once

#include <string>

#include "binding/python/python.h"
#include "declaration/declaration.h"

namespace tensor_ops {

// Borrowed; null where not given.
struct Arguments {
  PyObject* value[kMaxParameters] = {};
  PyObject* out = nullptr;
  PyObject* keyword = nullptr;  // the value of kKeyword
};

// Throws TypeError.
Arguments sort_arguments(const Declaration& op, PyObject* const* args, Py_ssize_t positional,
                         PyObject* keyword_names);

// "(x, weight, eps=1e-06, *, out=None)", and the backend's keyword if it has one.
std::string signature(const Declaration& op);

}  // namespace tensor_ops
