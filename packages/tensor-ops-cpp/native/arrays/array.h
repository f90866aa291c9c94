// An array argument, as checks/array_checks.h describes it: a NumPy array, or an array of another
// library.
#pragma once

#include "binding/python/dlpack.h"
#include "binding/python/python.h"
#include "declaration/strided_view.h"

namespace tensor_ops {

// The shape and the strides of a NumPy array are NumPy's.
struct Array : StridedView {
  PyObject* object;  // borrowed; null where not given
  bool is_output;
  PyArrayObject* numpy;  // the object itself if it is NumPy's, else null

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
