// NumPy arrays, and what is no array at all.
#include "arrays/readers.h"
#include "binding/python/dtypes.h"
#include "declaration/errors.h"

namespace tensor_ops {
namespace {

Name requires_grad("requires_grad"), is_neg("is_neg"), is_grad_enabled("is_grad_enabled");

// An attribute, or the result of a method, may be True.
bool is_true(Owned answer) {
  if (!answer) PyErr_Clear();
  return answer.get() == Py_True;
}

// PyTorch, or a library like it, may record gradients in this thread.
bool are_gradients_recorded(const std::string& package) {
  const Owned name(PyUnicode_FromString(package.c_str()));
  const Owned module(name ? PyImport_GetModule(name.get()) : nullptr);
  const Owned answer = module ? call_method(module.get(), is_grad_enabled.get()) : Owned();
  if (!answer) PyErr_Clear();
  return answer.get() != Py_False;
}

}  // namespace

void refuse_no_array(const char* op, const char* name, const Array& array) {
  throw TypeError(
      text(op, ": ", name, " must be a numpy.ndarray or an array on a CUDA device, got ",
           type_name(array.object), array.is_output ? "" : "; convert it with numpy.asarray"));
}

bool refuse_grad(const char* op, const char* name, const Array& array, const std::string& package) {
  const bool has_grad = is_true(Owned(PyObject_GetAttr(array.object, requires_grad.get())));
  if (has_grad && are_gradients_recorded(package))
    throw ValueError(text(op, ": ", name,
                          " requires grad, and tensor_ops computes no gradients; pass ", name,
                          ".detach(), or call in ", package, ".no_grad()"));
  // Such a view is handed out with the signs that are in memory.
  if (is_true(call_method(array.object, is_neg.get())))
    throw ValueError(text(
        op, ": ", name, " is a view that negates lazily; ",
        array.is_output ? text("give another tensor") : text("pass ", name, ".resolve_neg()")));
  return has_grad;
}

void read_numpy(const char* op, const char* name, Array& array) {
  auto* source = reinterpret_cast<PyArrayObject*>(array.object);
  array.data = PyArray_BYTES(source);
  array.device = kHost;
  array.dtype = checked_dtype(op, name, source, array.is_output);
  array.is_read_only = !PyArray_ISWRITEABLE(source);
  array.set_axes(PyArray_NDIM(source), PyArray_DIMS(source), PyArray_STRIDES(source), 1);
}

}  // namespace tensor_ops
