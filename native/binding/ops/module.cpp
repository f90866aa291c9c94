#include "binding/ops/module.h"

#include <array>
#include <new>
#include <string>
#include <utility>

#include "binding/ops/call.h"
#include "binding/ops/docstring.h"
#include "binding/python/python.h"
#include "declaration/dtype.h"
#include "declaration/errors.h"
#include "declaration/registry.h"
#include "launch/op.h"
#include "python/backend.h"

namespace py = pybind11;

namespace tensor_ops {
namespace {

// Sets the Python exception for the C++ exception in flight.
void set_python_error() {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (const TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const MemoryError& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

// For functions that pybind11 calls, which translates all other exceptions itself.
void translate(std::exception_ptr exception) {
  if (!exception) return;
  try {
    std::rethrow_exception(exception);
  } catch (const Error&) {
    set_python_error();
  } catch (const PythonError&) {
  }
}

// The ops are METH_FASTCALL functions, since pybind11's own calls cost several times as much. Each
// needs a C function of its own to know which op it is: their self is the module, so that they can
// be pickled.
constexpr std::size_t kMaxOps = 64;
const Op* ops[kMaxOps];
using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

template <std::size_t Index>
PyObject* call_op(PyObject*, PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  try {
    return call(*ops[Index], args, positional, names).release();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

template <std::size_t... Index>
constexpr std::array<FastCall, kMaxOps> entries(std::index_sequence<Index...>) {
  return {call_op<Index>...};
}

constexpr auto fast_calls = entries(std::make_index_sequence<kMaxOps>());
std::string docs[kMaxOps];
PyMethodDef methods[kMaxOps];

py::object new_function(std::size_t index, const py::module_& module) {
  const Op& op = *ops[index];
  docs[index] = docstring(op);
  methods[index] = {op.name,
                    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(fast_calls[index])),
                    METH_FASTCALL | METH_KEYWORDS, docs[index].c_str()};
  const py::str home(kModule);
  PyObject* function = PyCFunction_NewEx(&methods[index], module.ptr(), home.ptr());
  if (!function) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

}  // namespace

void add_ops(py::module_& module, const char* version) {
  if (!import_numpy()) throw py::error_already_set();
  py::register_local_exception_translator(translate);
  if (registered_ops().size() > kMaxOps) throw py::import_error(text(kModule, ": too many ops"));
  py::dict public_ops;
  for (std::size_t i = 0; i < registered_ops().size(); ++i) {
    ops[i] = registered_ops()[i];
    const char* name = ops[i]->name;
    const py::object function = new_function(i, module);
    module.attr(name) = function;
    if (name[0] != '_') public_ops[name] = function;
  }
  py::tuple dtypes(std::size_t{kDTypes});
  for (std::size_t i = 0; i < kDTypes; ++i) dtypes[i] = py::str(kDTypeNames[i]);
  module.attr("ops") = public_ops;
  module.attr("dtypes") = dtypes;
  module.attr("__version__") = version;
}

const char* configuration_of(tensor_ops_get_backend* entry) {
  const tensor_ops_backend* backend = nullptr;
  tensor_ops_error error;
  if (entry(TENSOR_OPS_ABI_VERSION, &backend, &error) != TENSOR_OPS_OK)
    throw py::import_error(error.message);
  return backend->configuration;
}

py::object text_or_none(const std::string& text) {
  return text.empty() ? py::object(py::none()) : py::object(py::str(text));
}

}  // namespace tensor_ops
