// A call of an op, from its Python arguments to its result.
#pragma once

#include "arrays/numpy.h"
#include "launch/declaration.h"

namespace tensor_ops {

// args and keyword_names as METH_FASTCALL | METH_KEYWORDS passes them. Throws TypeError,
// ValueError, MemoryError, std::bad_alloc, std::runtime_error (no instruction-set level can be
// used) or PythonError.
Owned launch(const Op& op, PyObject* const* args, Py_ssize_t positional, PyObject* keyword_names);

}  // namespace tensor_ops
