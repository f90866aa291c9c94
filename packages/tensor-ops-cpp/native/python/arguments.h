// Sorting the positional and keyword arguments of a call by the op's parameters, as Python would.
#pragma once

#include <string>

#include "arrays/numpy.h"
#include "launch/declaration.h"

namespace tensor_ops {

// Borrowed; null where not given.
struct Arguments {
  PyObject* value[kMaxParameters] = {};
  PyObject* out = nullptr;
  PyObject* num_threads = nullptr;
};

// Throws TypeError.
Arguments sort_arguments(const Op& op, PyObject* const* args, Py_ssize_t positional,
                         PyObject* keyword_names);

// "(x, weight, eps=1e-06, *, out=None, num_threads=None)"
std::string signature(const Op& op);

}  // namespace tensor_ops
