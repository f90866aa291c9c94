#include "binding/python/python.h"

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

// The text of a new string, or `otherwise`; no Python exception is set afterwards.
std::string text_or(const Owned& string, std::string otherwise) {
  const char* utf8 = string ? PyUnicode_AsUTF8(string.get()) : nullptr;
  if (utf8) return utf8;
  PyErr_Clear();
  return otherwise;
}

}  // namespace

PyObject* Name::get() const {
  if (PyObject* known = interned_.load(std::memory_order_acquire)) return known;
  PyObject* string = PyUnicode_InternFromString(text_);
  if (!string) throw PythonError();
  interned_.store(string, std::memory_order_release);  // the same string for all threads
  return string;
}

PyObject* Module::get() const {
  if (PyObject* known = found_.load(std::memory_order_acquire)) return known;
  Owned module(PyImport_GetModule(name_.get()));
  if (!module && PyErr_Occurred()) throw PythonError();
  // None stands for a module that must not be imported.
  if (!module || module.get() == Py_None) return nullptr;
  PyObject* none = nullptr;
  if (!found_.compare_exchange_strong(none, module.get())) return none;
  return module.release();
}

std::string take_error_text() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const Owned owned_type(type), owned_value(value), owned_traceback(traceback);
  const std::string whole =
      text_or(Owned(value ? PyObject_Str(value) : nullptr), "no reason given");
  return whole.substr(0, whole.find('\n'));
}

std::string repr_text(PyObject* object) {
  return text_or(Owned(PyObject_Repr(object)), text("an object of type ", type_name(object)));
}

std::string dtype_attribute_text(PyObject* object) {
  const Owned dtype(PyObject_GetAttrString(object, "dtype"));
  return text_or(Owned(dtype ? PyObject_Str(dtype.get()) : nullptr), "another dtype");
}

}  // namespace tensor_ops
