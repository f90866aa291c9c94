#include "binding/python/python.h"

#include "declaration/errors.h"
#if defined(_WIN32)
#include "declaration/windows_api.h"
#else
#include <dlfcn.h>
#endif

namespace tensor_ops {
namespace {

// The text of a new string, or `otherwise`; no Python exception is set afterwards.
std::string text_or(const Owned& string, std::string otherwise) {
  const char* utf8 = string ? PyUnicode_AsUTF8AndSize(string.get(), nullptr) : nullptr;
  if (utf8) return utf8;
  PyErr_Clear();
  return otherwise;
}

// A function of CPython's that the stable ABI lacks; null where the interpreter has none.
void* python_function(const char* name) {
#if defined(_WIN32)
  HMODULE python = nullptr;
  constexpr DWORD kOfAddress =
      GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExA(kOfAddress, reinterpret_cast<LPCSTR>(&PyObject_Repr), &python))
    return nullptr;
  return reinterpret_cast<void*>(GetProcAddress(python, name));
#else
  return dlsym(RTLD_DEFAULT, name);
#endif
}

using TraceMemory = int (*)(unsigned domain, std::uintptr_t address, std::size_t bytes);
const auto trace = reinterpret_cast<TraceMemory>(python_function("PyTraceMalloc_Track"));

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

std::string type_name(PyTypeObject* type) {
  const std::string name = text_or(Owned(PyType_GetName(type)), "object");
  if (PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) return name;
  auto* const object = reinterpret_cast<PyObject*>(type);
  const std::string module = text_or(Owned(PyObject_GetAttrString(object, "__module__")), "");
  return module.empty() || module == "builtins" ? name : module + "." + name;
}

void trace_memory(unsigned domain, const void* memory, std::size_t bytes) {
  if (trace) trace(domain, reinterpret_cast<std::uintptr_t>(memory), bytes);
}

std::string take_error_text() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const Owned owned_type(type), owned_value(value), owned_traceback(traceback);
  const std::string whole = value ? str_text(value) : "no reason given";
  return whole.substr(0, whole.find('\n'));
}

std::string str_text(PyObject* object) {
  return text_or(Owned(PyObject_Str(object)), "no reason given");
}

std::string repr_text(PyObject* object) {
  return text_or(Owned(PyObject_Repr(object)), text("an object of type ", type_name(object)));
}

std::string dtype_attribute_text(PyObject* object) {
  const Owned dtype(PyObject_GetAttrString(object, "dtype"));
  return text_or(Owned(dtype ? PyObject_Str(dtype.get()) : nullptr), "another dtype");
}

}  // namespace tensor_ops
