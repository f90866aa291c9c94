// The extension module tensor_ops_cuda._native: the ops, DeviceArray, and what Python needs to know
// of the devices.
#define TENSOR_OPS_IMPORTS_NUMPY
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <string>
#include <utility>

#include "arrays/python.h"
#include "launch/cuda.h"
#include "launch/declaration.h"
#include "launch/device.h"
#include "launch/errors.h"
#include "launch/pinned_pool.h"
#include "launch/staging.h"
#include "python/call.h"
#include "python/device_array.h"
#include "python/docstring.h"
#include "python/exceptions.h"
#include "python/host_device.h"

namespace py = pybind11;

namespace tensor_ops {
namespace {

// The ops are METH_FASTCALL functions, since pybind11's own calls cost several times as much. Each
// needs a C function of its own to know which op it is: their self is the module, so that they can
// be pickled.
constexpr std::size_t kMaxOps = 64;
using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

template <std::size_t Index>
PyObject* call_op(PyObject*, PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  try {
    return call(*registered_ops()[Index], args, positional, names).release();
  } catch (...) {
    set_python_error();
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
  const py::str home("tensor_ops_cuda");
  PyObject* function = PyCFunction_NewEx(&methods[index], module.ptr(), home.ptr());
  if (!function) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

void add_ops(py::module_& module) {
  if (registered_ops().size() > kMaxOps) throw py::import_error("tensor_ops_cuda: too many ops");
  py::dict ops;
  for (std::size_t i = 0; i < registered_ops().size(); ++i) {
    const char* name = registered_ops()[i]->name;
    ops[name] = new_function(i, module);
    module.attr(name) = ops[name];
  }
  module.attr("ops") = ops;
}

py::dict facts_of(const Device& device) {
  py::dict facts;
  facts["index"] = device.facts.index;
  facts["name"] = device.name;
  facts["compute_capability"] = 10 * device.facts.major + device.facts.minor;
  facts["compute_units"] = device.facts.multiprocessors;
  facts["max_memory"] = device.memory;
  facts["max_shared_memory"] = device.shared_memory;
  facts["has_clusters"] = device.facts.has_clusters;
  facts["reason"] = device.reason.empty() ? py::object(py::none()) : py::str(device.reason);
  return facts;
}

py::list list_devices() {
  py::list list;
  for (const Device& device : devices()) list.append(facts_of(device));
  return list;
}

py::object unavailable() {
  const std::string reason = unavailable_reason();
  return reason.empty() ? py::object(py::none()) : py::str(reason);
}

py::dict pool_info() {
  const PinnedPoolState state = pinned_pool_state();
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

void translate(std::exception_ptr exception) {
  if (!exception) return;
  try {
    std::rethrow_exception(exception);
  } catch (const TypeError&) {
    set_python_error();
  } catch (const ValueError&) {
    set_python_error();
  } catch (const MemoryError&) {
    set_python_error();
  } catch (const CudaError&) {
    set_python_error();
  } catch (const UnavailableError&) {
    set_python_error();
  } catch (const PythonError&) {
    set_python_error();
  }
}

}  // namespace

// Without the GIL calls need nothing more than they need while they have released it: state of the
// process is atomic, behind a lock that is held across no call into Python, or made before the
// module is. An array that another thread reshapes meanwhile is its caller's mistake, as in NumPy.
PYBIND11_MODULE(_native, module, py::mod_gil_not_used()) {
  if (_import_array() < 0) throw py::error_already_set();
  py::register_local_exception_translator(translate);
  module.doc() = "Native part of tensor_ops_cuda.";
  module.attr("__version__") = TENSOR_OPS_VERSION;
  module.attr("architectures") = TENSOR_OPS_CUDA_ARCHITECTURES;
  module.attr("device_variable") = kDeviceVariable;
  module.attr("dtypes") =
      py::tuple(py::cast(std::vector<std::string>(std::begin(kDTypeNames), std::end(kDTypeNames))));
  add_ops(module);
  add_device_array(module);
  module.def("devices", list_devices);
  module.def("unavailable_reason", unavailable);
  module.def("host_device", chosen_host_device);
  module.def("driver_version", driver_version);
  module.def("runtime_version", runtime_version);
  module.def("is_forked_child", is_forked_child);
  module.def("pool_info", pool_info);
  module.def("set_pool_limit", set_pinned_pool_limit);
  module.def("trim_pool", trim_pinned_pool);
  module.def("chunk_bytes", chunk_bytes);
  module.def("set_chunk_bytes", set_chunk_bytes);
}

}  // namespace tensor_ops
