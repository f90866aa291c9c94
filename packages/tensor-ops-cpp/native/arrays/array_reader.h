// Reads the array arguments of a call: all NumPy's, or all of one other library.
#pragma once

#include "arrays/foreign.h"
#include "binding/ops/arguments.h"
#include "binding/python/dtypes.h"

namespace tensor_ops {

class ArrayReader {
 public:
  explicit ArrayReader(const char* op) : op_(op) {}

  // Asks the library of the arguments all that may run Python code, before any memory is looked
  // at. Throws TypeError, ValueError or PythonError, as read() does.
  void begin(const Declaration& op, const Arguments& arguments);
  void read(const char* name, PyObject* object, Array& array) {
    array.object = object;
    if (exchange_) return read_foreign(name, array);
    if (!PyArray_Check(object)) refuse(name, array);
    array.numpy = reinterpret_cast<PyArrayObject*>(object);
    array.dtype = checked_dtype(op_, name, array.numpy, array.is_output);
    view_numpy(array.numpy, array);
  }
  bool is_read_only(const Array& array) const {
    return exchange_ ? is_read_only_foreign(array.object, *api_of(array.object))
                     : !PyArray_ISWRITEABLE(array.numpy);
  }

  // The allocator of the arrays' library; null where that is NumPy.
  const dlpack::ExchangeAPI* exchange() const { return exchange_; }

 private:
  struct Foreign {
    PyObject* object;  // borrowed
    const dlpack::ExchangeAPI* api;
  };

  void begin_foreign(const char* name, PyObject* object, bool is_output, bool has_tangents);
  void read_foreign(const char* name, Array& array);
  [[noreturn]] void refuse(const char* name, const Array& array) const;
  const dlpack::ExchangeAPI* api_of(PyObject* object) const;
  [[noreturn]] void refuse_two_libraries(const char* name, PyObject* object) const;

  const char* op_;
  const char* first_ = nullptr;  // the first argument, which decides the library
  PyObject* first_object_ = nullptr;
  const dlpack::ExchangeAPI* exchange_ = nullptr;
  Foreign foreign_[kMaxArrays + kMaxOutputs];  // of exchange_; the first foreign_count_ are set
  int foreign_count_ = 0;
};

}  // namespace tensor_ops
