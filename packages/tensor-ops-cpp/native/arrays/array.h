// An array argument, as checks/array_checks.h describes it: a NumPy array, or an array of another
// library with a NumPy view of its memory.
#pragma once

#include "binding/dlpack.h"
#include "binding/python.h"

namespace tensor_ops {

struct Array {
  PyObject* object = nullptr;  // borrowed; null where not given
  bool is_output = false;
  DType type;
  PyArrayObject* numpy;  // the object itself if it is NumPy's; else one the ArrayReader owns

  bool is_given() const { return object != nullptr; }
  bool is_numpy() const { return object == reinterpret_cast<PyObject*>(numpy); }
  DType dtype() const { return type; }
  int dims() const { return PyArray_NDIM(numpy); }
  const npy_intp* shape() const { return PyArray_DIMS(numpy); }
  const npy_intp* strides() const { return PyArray_STRIDES(numpy); }
  char* data() const { return PyArray_BYTES(numpy); }
  bool is_contiguous() const { return PyArray_IS_C_CONTIGUOUS(numpy); }
};

// PyArray_SIZE() without a call into NumPy.
inline npy_intp size_of(PyArrayObject* array) {
  npy_intp size = 1;
  for (int d = 0; d < PyArray_NDIM(array); ++d) size *= PyArray_DIM(array, d);
  return size;
}

inline std::size_t bytes_of(PyArrayObject* array) {
  return static_cast<std::size_t>(size_of(array) * PyArray_ITEMSIZE(array));
}

// "float32" or "int64".
inline std::string dtype_text(const Array& array) {
  return array.is_numpy() || array.type == kDTypes ? dtype_attribute_text(array.object)
                                                   : kDTypeNames[array.type];
}

}  // namespace tensor_ops
