// Host arrays of other libraries, seen through DLPack's C exchange API.
#pragma once

#include "arrays/array.h"
#include "binding/python/host_arrays.h"

namespace tensor_ops {

// Sets the view of the array's object, valid as long as that is and keeps its memory. Runs no
// Python code. Throws TypeError, ValueError or PythonError, with the op's and the argument's name,
// unless it is an array on the host of a supported dtype.
void view_foreign(const char* op, const char* name, const dlpack::ExchangeAPI& api, Array& array);

// A library may say that an array of its own must not be written to. Throws PythonError.
bool is_read_only_foreign(PyObject* object, const dlpack::ExchangeAPI& api);

// Lets autograd know that an array was written to.
void note_written(PyObject* object);

// A new array of a library.
class ForeignResult {
 public:
  ForeignResult() = default;
  // C-contiguous, of the shape and dtype of an array; not initialised. Throws MemoryError, Error
  // or PythonError.
  ForeignResult(const char* op, const Array& like, const dlpack::ExchangeAPI& api);

  explicit operator bool() const { return tensor_ != nullptr; }
  // Sets the view that it is written by, all but the dtype.
  void view(Array& array) const;
  // The array itself, once. Throws PythonError.
  Owned release();

 private:
  const dlpack::ExchangeAPI* api_ = nullptr;
  dlpack::OwnedTensor tensor_;
};

}  // namespace tensor_ops
