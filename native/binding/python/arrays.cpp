#include "binding/python/arrays.h"

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

Owned array_of(int type, const Shape& shape, void* memory) {
  const std::vector<npy_intp> lengths(shape.begin(), shape.end());
  Owned array(PyArray_New(&PyArray_Type, static_cast<int>(lengths.size()), lengths.data(), type,
                          nullptr, memory, 0, memory ? NPY_ARRAY_CARRAY : 0, nullptr));
  if (!array) throw PythonError();
  return array;
}

}  // namespace

Owned empty_array(int type, const Shape& shape) { return array_of(type, shape, nullptr); }

Owned array_over(int type, const Shape& shape, void* memory, Owned owner) {
  Owned array = array_of(type, shape, memory);
  if (PyArray_SetBaseObject(array.array(), owner.release()) != 0) throw PythonError();
  return array;
}

}  // namespace tensor_ops
