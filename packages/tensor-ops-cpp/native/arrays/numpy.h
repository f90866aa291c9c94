// NumPy's C API, imported once, in python/module.cpp.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL tensor_ops_cpp_numpy_api
#ifndef TENSOR_OPS_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <utility>

namespace tensor_ops {

// PyArray_SIZE() without a call into NumPy.
inline npy_intp size_of(PyArrayObject* array) {
  npy_intp size = 1;
  for (int d = 0; d < PyArray_NDIM(array); ++d) size *= PyArray_DIM(array, d);
  return size;
}

inline std::size_t bytes_of(PyArrayObject* array) {
  return static_cast<std::size_t>(size_of(array) * PyArray_ITEMSIZE(array));
}

// A strong reference.
class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* stolen) : object_(stolen) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }

  static Owned borrow(PyObject* object) { return Owned(Py_NewRef(object)); }

  PyObject* get() const { return object_; }
  PyArrayObject* array() const { return reinterpret_cast<PyArrayObject*>(object_); }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace tensor_ops
