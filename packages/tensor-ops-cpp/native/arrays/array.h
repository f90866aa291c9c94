// An array argument, as checks/array_checks.h describes it: a NumPy array, or an array of another
// library.
#pragma once

#include "binding/dlpack.h"
#include "binding/python.h"
#include "declaration/array_view.h"
#include "declaration/declaration.h"

namespace tensor_ops {

struct Array : ArrayView {
  PyObject* object;  // borrowed; null where not given
  bool is_output;
  PyArrayObject* numpy;  // the object itself if it is NumPy's, else null
  // Shape and strides of an array of another library.
  std::ptrdiff_t own_shape[kMaxDims], own_strides[kMaxDims];

  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  bool is_given() const { return object != nullptr; }
  bool is_numpy() const { return numpy != nullptr; }
};

// Sets the view, but for the dtype.
inline void view_numpy(PyArrayObject* array, ArrayView& view) {
  view.data = PyArray_BYTES(array);
  view.dims = PyArray_NDIM(array);
  view.shape = PyArray_DIMS(array);
  view.strides = PyArray_STRIDES(array);
  view.is_contiguous = PyArray_IS_C_CONTIGUOUS(array);
}

// "float32" or "int64".
inline std::string dtype_text(const Array& array) {
  return array.is_numpy() || array.dtype == kDTypes ? dtype_attribute_text(array.object)
                                                    : kDTypeNames[array.dtype];
}

}  // namespace tensor_ops
