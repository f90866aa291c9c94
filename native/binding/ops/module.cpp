#include "binding/ops/module.h"

#include <array>
#include <new>
#include <string>
#include <utility>

#include "binding/ops/call.h"
#include "binding/ops/docstring.h"
#include "declaration/dtype.h"
#include "declaration/errors.h"
#include "declaration/registry.h"
#include "launch/op.h"
#include "python/backend.h"

namespace nb = nanobind;

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

// For functions that nanobind calls, which translates all other exceptions itself.
void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error&) {
    set_python_error();
  } catch (const PythonError&) {
  }
}

// The ops are METH_FASTCALL functions, since calls by way of nanobind cost more. Each needs a C
// function of its own to know which op it is: their self is the module, so that they can be
// pickled.
constexpr std::size_t kMaxOps = 64;
const Op* ops[kMaxOps];
ParameterNames parameter_names[kMaxOps];
using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

template <std::size_t Index>
PyObject* call_op(PyObject*, PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  try {
    return call(*ops[Index], parameter_names[Index], args, positional, names).release();
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

nb::object new_function(std::size_t index, const nb::module_& module) {
  const Op& op = *ops[index];
  docs[index] = docstring(op);
  parameter_names[index] = interned_names(op);
  methods[index] = {op.name,
                    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(fast_calls[index])),
                    METH_FASTCALL | METH_KEYWORDS, docs[index].c_str()};
  const nb::str home(kModule);
  return object_of(Owned(PyCFunction_NewEx(&methods[index], module.ptr(), home.ptr())));
}

// Has functions of nanobind's pickled by their names, as Python's own are.
void make_functions_picklable() {
  const nb::object function = nb::cpp_function([] {});
  const nb::object by_name = nb::module_::import_("operator").attr("attrgetter")("__name__");
  nb::module_::import_("copyreg").attr("pickle")(function.type(), by_name);
}

}  // namespace

void add_ops(nb::module_& module, const char* version) {
  // Executables may live as long as the process, which is no leak.
  nb::set_leak_warnings(false);
  if (!import_numpy()) throw nb::python_error();
  nb::register_exception_translator(translate);
  make_functions_picklable();
  if (registered_ops().size() > kMaxOps)
    throw nb::import_error(text(kModule, ": too many ops").c_str());
  nb::dict public_ops;
  for (std::size_t i = 0; i < registered_ops().size(); ++i) {
    ops[i] = registered_ops()[i];
    const char* name = ops[i]->name;
    const nb::object function = new_function(i, module);
    module.attr(name) = function;
    if (name[0] != '_') public_ops[name] = function;
  }
  nb::list dtypes;
  for (std::size_t i = 0; i < kDTypes; ++i) dtypes.append(kDTypeNames[i]);
  module.attr("ops") = public_ops;
  module.attr("dtypes") = nb::tuple(dtypes);
  module.attr("__version__") = version;
}

const char* configuration_of(tensor_ops_get_backend* entry) {
  const tensor_ops_backend* backend = nullptr;
  tensor_ops_error error;
  if (entry(TENSOR_OPS_ABI_VERSION, &backend, &error) != TENSOR_OPS_OK)
    throw nb::import_error(error.message);
  return backend->configuration;
}

nb::object text_or_none(const std::string& text) {
  return text.empty() ? nb::none() : nb::cast(text);
}

}  // namespace tensor_ops
