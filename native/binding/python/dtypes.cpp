#include "binding/python/dtypes.h"

#include <atomic>

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

Module numpy_ma("numpy.ma");
Name masked_array("MaskedArray");

// ml_dtypes is not a dependency: its type is known by name, and remembered (kept alive) once seen.
std::atomic<PyTypeObject*> bfloat16_type{nullptr};

bool is_masked(PyObject* object) {
  PyObject* module = numpy_ma.get();
  if (!module) return false;  // without numpy.ma there are no masked arrays
  const Owned type(PyObject_GetAttr(module, masked_array.get()));
  if (!type) PyErr_Clear();
  // Not isinstance(), which would ask the object.
  return type && PyType_Check(type.get()) &&
         PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type.get()));
}

bool is_called(PyTypeObject* type, const char* attribute, const char* text) {
  const Owned value(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), attribute));
  if (!value) PyErr_Clear();
  return value && PyUnicode_Check(value.get()) &&
         PyUnicode_CompareWithASCIIString(value.get(), text) == 0;
}

}  // namespace

bool is_bfloat16_type(PyTypeObject* type) {
  if (type == bfloat16_type.load(std::memory_order_relaxed)) return true;
  if (!is_called(type, "__name__", "bfloat16") || !is_called(type, "__module__", "ml_dtypes"))
    return false;
  PyTypeObject* none = nullptr;
  if (bfloat16_type.compare_exchange_strong(none, type))
    Py_INCREF(reinterpret_cast<PyObject*>(type));
  return true;
}

void refuse_masked_and_swapped(const char* op, const char* name, PyArrayObject* array,
                               bool is_output) {
  auto* object = reinterpret_cast<PyObject*>(array);
  if (!PyArray_CheckExact(object) && is_masked(object))
    throw TypeError(
        text(op, ": ", name,
             " must be a numpy.ndarray, got a MaskedArray, whose mask would be ignored; ",
             is_output ? "give an array without a mask" : "fill it with .filled(value) first"));
  if (dtype_of(PyArray_DESCR(array)) == kDTypes || PyArray_ISNOTSWAPPED(array)) return;
  throw TypeError(text(
      op, ": ", name, " must have native byte order, got dtype ", dtype_attribute_text(object),
      is_output
          ? text("; give an array of native byte order")
          : text("; convert it with ", name, ".astype(", name, ".dtype.newbyteorder(\"=\"))")));
}

}  // namespace tensor_ops
