#include "arrays/dtypes.h"

#include <atomic>
#include <cstring>

namespace tensor_ops {
namespace {

bool module_is_ml_dtypes(PyTypeObject* type) {
  const Owned module(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__"));
  if (!module) {
    PyErr_Clear();
    return false;
  }
  return PyUnicode_Check(module.get()) &&
         PyUnicode_CompareWithASCIIString(module.get(), "ml_dtypes") == 0;
}

}  // namespace

// ml_dtypes is not a dependency: its type is known by name, and remembered (kept alive) once seen.
bool is_bfloat16_type(PyTypeObject* type) {
  static std::atomic<PyTypeObject*> known{nullptr};
  if (type == known.load(std::memory_order_relaxed)) return true;
  const char* dot = std::strrchr(type->tp_name, '.');
  if (std::strcmp(dot ? dot + 1 : type->tp_name, "bfloat16") != 0) return false;
  if (!module_is_ml_dtypes(type)) return false;
  PyTypeObject* none = nullptr;
  if (known.compare_exchange_strong(none, type)) Py_INCREF(type);
  return true;
}

DType dtype_of(PyArray_Descr* descr) {
  switch (descr->type_num) {
    case NPY_FLOAT:
      return kFloat32;
    case NPY_HALF:
      return kFloat16;
    case NPY_DOUBLE:
      return kFloat64;
    default:
      break;
  }
  const bool may_be_bfloat16 = PyTypeNum_ISUSERDEF(descr->type_num) &&
                               PyDataType_ELSIZE(descr) == 2 && is_bfloat16_type(descr->typeobj);
  return may_be_bfloat16 ? kBFloat16 : kDTypes;
}

}  // namespace tensor_ops
