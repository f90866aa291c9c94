// A call of an op, from its Python arguments to its result. Each backend has it in python/call.cpp.
#pragma once

#include "binding/ops/arguments.h"
#include "launch/op.h"

namespace tensor_ops {

// args and keyword_names as METH_FASTCALL | METH_KEYWORDS passes them. Throws what the binding
// makes Python exceptions of.
Owned call(const Op& op, const ParameterNames& names, PyObject* const* args, Py_ssize_t positional,
           PyObject* keyword_names);

}  // namespace tensor_ops
