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

// The names of an op's parameters as interned strings, which those in a program's text are too:
// most names of a call are found by their addresses.
struct ParameterNames {
  PyObject* of[kMaxParameters] = {};
};
// Throws PythonError.
ParameterNames interned_names(const Declaration& op);

// Throws TypeError.
Arguments sort_arguments(const Declaration& op, const ParameterNames& names, PyObject* const* args,
                         Py_ssize_t positional, PyObject* keyword_names);

// "(x, weight, eps=1e-06, *, out=None)", and the backend's keyword if it has one.
std::string signature(const Declaration& op);

}  // namespace tensor_ops
