// The dtype of NumPy arrays that are arguments, and the arrays that are refused.
#pragma once

#include "binding/python/python.h"
#include "declaration/dtype.h"

namespace tensor_ops {

// The type of a NumPy scalar is ml_dtypes.bfloat16.
bool is_bfloat16_type(PyTypeObject* type);

// kDTypes for an unsupported one. Does not look at the byte order.
inline DType dtype_of(PyArray_Descr* descr) {
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

// Throws TypeError, naming op and argument, for masked arrays and for foreign byte order.
void refuse_masked_and_swapped(const char* op, const char* name, PyArrayObject* array,
                               bool is_output);

// The dtype of an array argument, kDTypes for an unsupported one. Throws TypeError for masked
// arrays, and for foreign byte order of a supported dtype.
inline DType checked_dtype(const char* op, const char* name, PyArrayObject* array, bool is_output) {
  const DType dtype = dtype_of(PyArray_DESCR(array));
  const bool is_usual = PyArray_CheckExact(reinterpret_cast<PyObject*>(array)) &&
                        (dtype == kDTypes || PyArray_ISNOTSWAPPED(array));
  if (!is_usual) refuse_masked_and_swapped(op, name, array, is_output);
  return dtype;
}

}  // namespace tensor_ops
