// Arrays of other libraries in host memory, seen through DLPack's C exchange API, also as NumPy
// arrays over the same memory; bfloat16 as uint16.
#pragma once

#include "binding/python/dlpack.h"
#include "binding/python/python.h"

namespace tensor_ops {

// The exchange API of a type; null where the type has none, one of an unknown version, or one that
// lacks functions. Throws PythonError.
const dlpack::ExchangeAPI* exchange_api(PyTypeObject* type);

// Whether PyTorch tracks tangents now, which are no part of a tensor's memory. Throws PythonError.
bool are_tangents_tracked();

// Throws ValueError, with the op's and the argument's name, for an array that would lose its
// gradient or its tangent, or whose signs are not in memory, and PythonError. May run Python code.
void require_all_in_memory(const char* op, const char* name, PyObject* object, bool is_output,
                           bool has_tangents);

// The memory of an array, valid as long as that is and keeps its memory. Runs no Python code.
// Throws TypeError, with the op's and the argument's name.
dlpack::DLTensor tensor_of(const char* op, const char* name, const dlpack::ExchangeAPI& api,
                           PyObject* object);
bool is_in_host_memory(const dlpack::DLTensor& tensor);

// The dtype of an array in host memory. Throws TypeError or ValueError, with the op's and the
// argument's name, unless there is memory of a supported dtype, of no more axes than NumPy's arrays
// have.
DType dtype_in_memory(const char* op, const char* name, PyObject* object, bool is_output,
                      const dlpack::DLTensor& tensor);

// A view of the memory of an array in host memory. Runs no Python code. Throws as dtype_in_memory()
// does, for what is too big for NumPy too, and PythonError.
Owned view_of_host_array(const char* op, const char* name, PyObject* object, bool is_output,
                         const dlpack::DLTensor& tensor);

}  // namespace tensor_ops
