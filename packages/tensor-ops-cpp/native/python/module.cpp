// The extension module tensor_ops_cpp._native: the ops and what Python needs to know of the
// launcher.
#define TENSOR_OPS_IMPORTS_NUMPY
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <string>
#include <utility>

#include "arrays/dtypes.h"
#include "arrays/results.h"
#include "isa/isa.h"
#include "launch/declaration.h"
#include "launch/errors.h"
#include "memory/cache.h"
#include "memory/pool_limit.h"
#include "memory/result_pool.h"
#include "python/call.h"
#include "python/docstring.h"
#include "threads/resources.h"
#include "threads/threads.h"

namespace py = pybind11;

namespace tensor_ops {
namespace {

// Sets the error indicator for the exception in flight.
void translate_exception() {
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

// The ops are METH_FASTCALL functions, since pybind11's own calls cost several times as much. Each
// needs a C function of its own to know which op it is: their self is the module, so that they can
// be pickled.
constexpr std::size_t kMaxOps = 64;
using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

template <std::size_t Index>
PyObject* call_op(PyObject*, PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  try {
    return launch(*registered_ops()[Index], args, positional, names).release();
  } catch (...) {
    translate_exception();
    return nullptr;
  }
}

template <std::size_t... Index>
constexpr std::array<FastCall, kMaxOps> entries(std::index_sequence<Index...>) {
  return {call_op<Index>...};
}

py::object new_function(std::size_t index, const py::module_& module) {
  static constexpr auto entry = entries(std::make_index_sequence<kMaxOps>());
  static std::string docs[kMaxOps];
  static PyMethodDef methods[kMaxOps];
  const Op& op = *registered_ops()[index];
  docs[index] = docstring(op);
  methods[index] = {op.name,
                    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry[index])),
                    METH_FASTCALL | METH_KEYWORDS, docs[index].c_str()};
  const py::str home("tensor_ops_cpp");
  PyObject* function = PyCFunction_NewEx(&methods[index], module.ptr(), home.ptr());
  if (!function) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

void add_ops(py::module_& module) {
  if (registered_ops().size() > kMaxOps) throw py::import_error("tensor_ops_cpp: too many ops");
  py::dict public_ops;
  for (std::size_t i = 0; i < registered_ops().size(); ++i) {
    const char* name = registered_ops()[i]->name;
    const py::object function = new_function(i, module);
    module.attr(name) = function;
    if (name[0] != '_') public_ops[name] = function;
  }
  module.attr("ops") = public_ops;
}

py::list level_names(bool only_of_cpu) {
  py::list names;
  for (const Level& level : compiled_levels())
    if (!only_of_cpu || level.cpu_has()) names.append(level.name);
  return names;
}

// None where no level can be used.
py::object level_in_use() {
  if (!isa_choice().reason.empty()) return py::none();
  return py::str(compiled_levels()[isa_choice().index].name);
}

py::object text_or_none(const std::string& value) {
  return value.empty() ? py::object(py::none()) : py::object(py::str(value));
}

std::vector<const char*> features() {
  if (!isa_choice().reason.empty()) return {};
  return compiled_levels()[isa_choice().index].features;
}

py::dict pool_info() {
  const PoolState state = pool_state();
  py::dict info;
  info["limit"] = state.limit;
  info["held_bytes"] = state.held_bytes;
  info["held_blocks"] = state.held_blocks;
  info["used_bytes"] = state.used_bytes;
  info["used_blocks"] = state.used_blocks;
  info["hits"] = state.hits;
  info["misses"] = state.misses;
  return info;
}

void import_numpy() {
  if (_import_array() < 0) throw py::error_already_set();
  try {
    prepare_results();
  } catch (const PythonError&) {
    throw py::error_already_set();
  }
}

}  // namespace

// Without the GIL calls need nothing more than they need while they have released it: state of the
// process is atomic, behind a lock that is held across no call into Python, or made before the
// module is. An array that another thread reshapes meanwhile is its caller's mistake, as in NumPy.
PYBIND11_MODULE(_native, module, py::mod_gil_not_used()) {
  import_numpy();
  module.doc() = "Native part of tensor_ops_cpp.";
  module.attr("__version__") = TENSOR_OPS_VERSION;
  add_ops(module);
  module.attr("dtypes") =
      py::tuple(py::cast(std::vector<std::string>(std::begin(kDTypeNames), std::end(kDTypeNames))));
  module.def("level", level_in_use);
  module.def("compiled_levels", [] { return level_names(false); });
  module.def("cpu_levels", [] { return level_names(true); });
  module.def("features", features);
  module.def("unavailable_reason", [] { return text_or_none(isa_choice().reason); });
  module.def("cpu_brand", [] { return text_or_none(cpu_brand()); });
  module.def("allowed_threads", allowed_threads);
  module.def("allowed_memory", allowed_memory);
  module.def("num_threads", num_threads);
  module.def("set_num_threads", set_num_threads);
  module.def("cache_size", cache_size);
  module.def("streaming_threshold", streaming_threshold);
  module.def("set_streaming_threshold", set_streaming_threshold);
  module.def("pool_info", pool_info);
  module.def("set_pool_limit", set_pool_limit);
  module.def("trim_pool", trim_pool);
  module.def("pool_setting_problem", [] { return text_or_none(first_pool_limit().problem); });
}

}  // namespace tensor_ops
