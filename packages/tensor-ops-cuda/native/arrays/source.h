// What kind of array a Python object is.
#pragma once

#include "arrays/array.h"

namespace tensor_ops {

// What is known of a type from its first instance on. An instance's own attributes do not count.
struct TypeFacts {
  PyTypeObject* type;
  Source source;
  bool is_array = true;
  const dlpack::ExchangeAPI* api = nullptr;
  bool may_require_grad = false;  // has the attributes of a torch tensor
  std::string package;            // "cupy"
};

// By type, remembered; any thread may ask. Throws PythonError.
TypeFacts facts_of(PyObject* object);

}  // namespace tensor_ops
