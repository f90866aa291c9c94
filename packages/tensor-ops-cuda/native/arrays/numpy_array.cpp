// NumPy arrays, and what is no array at all.
#include <atomic>

#include "arrays/dtypes.h"
#include "arrays/readers.h"
#include "launch/errors.h"

namespace tensor_ops {
namespace {

bool is_masked(PyObject* object) {
  // Where numpy.ma was never imported there is nothing that could be masked.
  const Owned name(PyUnicode_FromString("numpy.ma"));
  const Owned module(name ? PyImport_GetModule(name.get()) : nullptr);
  const Owned type(module ? PyObject_GetAttrString(module.get(), "MaskedArray") : nullptr);
  if (PyErr_Occurred()) PyErr_Clear();
  // Not isinstance(), which would ask the object.
  return type && PyType_Check(type.get()) &&
         PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type.get()));
}

void require_native_order(const char* op, const char* name, const Array& array) {
  if (PyArray_ISNOTSWAPPED(reinterpret_cast<PyArrayObject*>(array.object))) return;
  throw TypeError(text(
      op, ": ", name, " must have native byte order, got dtype ", dtype_text(array),
      array.is_output
          ? text("; give an array of native byte order")
          : text("; convert it with ", name, ".astype(", name, ".dtype.newbyteorder(\"=\"))")));
}

// A string that is made once. Not as a local static: without a GIL, a thread that waits for another
// to make it cannot be stopped for the garbage collector, which may have stopped that other one.
struct Name {
  const char* text;
  std::atomic<PyObject*> interned{nullptr};

  PyObject* get() {
    if (PyObject* known = interned.load(std::memory_order_acquire)) return known;
    PyObject* string = PyUnicode_InternFromString(text);
    if (!string) throw PythonError();
    interned.store(string, std::memory_order_release);  // for all threads the same string
    return string;
  }
};

// Whether an attribute, or what a method returns, is True.
bool is_true(Owned answer) {
  if (!answer) PyErr_Clear();
  return answer.get() == Py_True;
}

// Whether PyTorch, or a library like it, records gradients in this thread.
bool are_gradients_recorded(const std::string& package) {
  static Name is_grad_enabled{"is_grad_enabled"};
  const Owned name(PyUnicode_FromString(package.c_str()));
  const Owned module(name ? PyImport_GetModule(name.get()) : nullptr);
  const Owned answer(module ? PyObject_CallMethodNoArgs(module.get(), is_grad_enabled.get())
                            : nullptr);
  if (!answer) PyErr_Clear();
  return answer.get() != Py_False;
}

}  // namespace

void refuse_no_array(const char* op, const char* name, const Array& array) {
  throw TypeError(text(
      op, ": ", name, " must be a numpy.ndarray or an array on a CUDA device, got ",
      Py_TYPE(array.object)->tp_name, array.is_output ? "" : "; convert it with numpy.asarray"));
}

bool refuse_grad(const char* op, const char* name, const Array& array, const std::string& package) {
  static Name requires_grad{"requires_grad"}, is_neg{"is_neg"};
  const bool has_grad = is_true(Owned(PyObject_GetAttr(array.object, requires_grad.get())));
  if (has_grad && are_gradients_recorded(package))
    throw ValueError(text(op, ": ", name,
                          " requires grad, and tensor_ops computes no gradients; pass ", name,
                          ".detach(), or call in ", package, ".no_grad()"));
  // Such a view is handed out with the signs that are in memory.
  if (is_true(Owned(PyObject_CallMethodNoArgs(array.object, is_neg.get()))))
    throw ValueError(text(op, ": ", name, " is a view that negates lazily; ",
                          array.is_output ? text("give a tensor that is no such view")
                                          : text("pass ", name, ".resolve_neg()")));
  return has_grad;
}

void read_numpy(const char* op, const char* name, Array& array) {
  if (!PyArray_CheckExact(array.object) && is_masked(array.object))
    throw TypeError(text(
        op, ": ", name,
        " must be a numpy.ndarray, got a MaskedArray, whose mask would be "
        "ignored; ",
        array.is_output ? "give an array without a mask" : "fill it with .filled(value) first"));
  auto* source = reinterpret_cast<PyArrayObject*>(array.object);
  View& view = array.view;
  view.data = PyArray_BYTES(source);
  view.device = kHost;
  view.dtype = dtype_of(PyArray_DESCR(source));
  view.is_read_only = !PyArray_ISWRITEABLE(source);
  view.dims = PyArray_NDIM(source);
  for (int d = 0; d < view.dims; ++d) {
    view.shape[d] = PyArray_DIM(source, d);
    view.stride[d] = PyArray_STRIDE(source, d);
  }
  if (view.dtype != kDTypes) require_native_order(op, name, array);
}

}  // namespace tensor_ops
