#include "python/decode.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "binding/decode_executable.h"
#include "binding/decode_program.h"
#include "binding/decode_ranks.h"
#include "binding/decode_tensors.h"
#include "declaration/errors.h"
#include "decode/executor/executable.h"
#include "decode/executor/runnable.h"
#include "decode/executor/settings.h"
#include "decode/kernels/plan.h"
#include "decode/ranks/exchange_sizes.h"
#include "launch/device.h"
#include "python/host_device.h"

namespace py = pybind11;

namespace tensor_ops {
namespace {

using decode::Executable;

// Of host arrays. Throws UnavailableError where it cannot be used.
int device_of_programs(const char* function) {
  try {
    return usable_device(chosen_host_device()).index;
  } catch (const UnavailableError& error) {
    throw UnavailableError(text(function, ": tensor_ops_cuda is unavailable: ", error.what()));
  }
}

// The handle of a stream, as libraries in Python give it.
void* stream_from(const py::handle& value) {
  if (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr()))
    throw TypeError(
        text("stream must be the handle of a stream, an int, got ", type_name(value.ptr())));
  void* const handle = PyLong_AsVoidPtr(value.ptr());
  if (PyErr_Occurred()) throw PythonError();
  return handle;
}

// Whether tensor cores multiply is said by use_cutlass_kernel and by the activations, which may not
// contradict each other.
void take_options(const py::object& options, decode::CompileOptions& compile) {
  if (options.is_none()) return;
  std::optional<bool> by_kernel, by_activations;
  for (const auto& [key, value] : options.cast<py::dict>()) {
    const auto name = py::str(key).cast<std::string>();
    if (name == "activations") {
      const auto type = decode::activation_type(py::str(value).cast<std::string>());
      by_activations = decode::are_for_tensor_cores(type);
    } else if (name == "use_cutlass_kernel") {
      if (!PyBool_Check(value.ptr()))
        throw TypeError(
            text("use_cutlass_kernel must be a bool or left out, got ", type_name(value.ptr())));
      by_kernel = value.ptr() == Py_True;
    } else if (name == "stream") {
      compile.stream = stream_from(value);
    } else {
      throw ValueError(
          text("unknown option '", name, "'; valid: activations, stream, use_cutlass_kernel"));
    }
  }
  const bool by_either = by_kernel.value_or(by_activations.value_or(true));
  if (by_either != by_activations.value_or(by_either))
    throw ValueError(text("use_cutlass_kernel is ", by_either ? "True" : "False",
                          ", whose activations are '", by_either ? "int8x2" : "float32", "', got '",
                          by_either ? "float32" : "int8x2", "'; leave one of the two out"));
  compile.uses_tensor_cores = by_either;
}

decode::CompileOptions compile_options(const char* function, const py::object& num_workers,
                                       const py::object& options, const GivenRanks& ranks) {
  decode::CompileOptions compile{};
  compile.rank = ranks.rank();
  compile.world_size = ranks.world_size();
  take_options(options, compile);
  compile.device = device_of_programs(function);
  // Ranks of a machine take its devices in turn, unless the environment names one.
  if (ranks.world_size() > 1 && !is_host_device_chosen())
    compile.device = usable_device(static_cast<int>(ranks.rank_here() % devices().size())).index;
  if (!num_workers.is_none())
    compile.num_workers = workers_from(num_workers, decode::most_blocks(compile.device));
  return compile;
}

// An executable, which has a copy of its tensors.
class PyExecutable : public BoundExecutor {
 public:
  PyExecutable(const std::string& json, const py::object& tensors, const py::object& num_workers,
               const py::object& options, const py::object& progress, const GivenRanks& ranks) {
    decode::CompileOptions compile =
        compile_options("compile_program", num_workers, options, ranks);
    compile.progress = progress_calls(progress);
    decode::Program program = *program_of(json);
    decode::require_runnable(program, compile.device);
    const std::vector<bool> wanted(program.tensors.size(), true);
    const GivenTensors given = given_tensors(program, tensors, wanted);
    decode::check_ranks(program, ranks.rank(), ranks.world_size());
    compile.exchange = ranks.exchange(program, decode::kMostTokens);
    executable_ = made_for_ranks(compile.exchange, [&] {
      return without_gil(
          [&] { return std::make_unique<Executable>(std::move(program), given.bytes, compile); });
    });
    make_properties();
    options_["use_cutlass_kernel"] = compile.uses_tensor_cores;
  }

  // The blocks work on a node together, so that a step has one row, which waits for nothing.
  py::dict profile(std::int64_t num_tokens, std::int64_t num_selected) {
    const decode::StepProfile times = without_gil([&] {
      return executable_->profile(static_cast<std::size_t>(num_tokens),
                                  static_cast<std::size_t>(num_selected));
    });
    const std::vector<std::size_t> shape{1, times.nodes.size()};
    const std::vector<double> none(times.nodes.size());
    using namespace py::literals;
    return py::dict("seconds"_a = times.whole, "work"_a = py::array_t(shape, times.nodes.data()),
                    "wait"_a = py::array_t(shape, none.data()));
  }

  double read_bandwidth() {
    return without_gil([&] { return executable_->read_bandwidth(); });
  }

 private:
  decode::Executor& executor() const override { return *executable_; }

  std::unique_ptr<Executable> executable_;
};

py::object unsupported_reason(const std::string& json) {
  try {
    const int device = usable_device(chosen_host_device()).index;
    decode::require_runnable(*program_of(json), device);
  } catch (const Error& error) {
    return py::str(error.what());
  }
  return py::none();
}

py::dict program_memory(const std::string& json, const py::object& num_workers,
                        const py::object& options, const py::object& ranks) {
  const auto program = program_of(json);
  const GivenRanks given("program_memory", ranks);
  return dict_of(Executable::memory_of(
      *program, compile_options("program_memory", num_workers, options, given)));
}

std::size_t program_memory_limit() {
  return free_memory(device_of_programs("program_memory_limit"));
}

}  // namespace

void add_decode(py::module_& module) {
  using namespace py::literals;
  module.def("supports_program", unsupported_reason, "program"_a);
  module.def("program_memory", program_memory, "program"_a, "num_workers"_a, "options"_a,
             "ranks"_a = py::none());
  module.def("program_memory_limit", program_memory_limit);
  module.def("most_workers",
             [] { return decode::most_blocks(device_of_programs("most_workers")); });
  executable_class<PyExecutable>(module)
      .def("profile", &PyExecutable::profile, "num_tokens"_a, "num_selected"_a,
           "Run one step, and return how long each node took by the device's clock.")
      .def("read_bandwidth", &PyExecutable::read_bandwidth,
           "Copy the weights on the device; return the bytes per second that it reads and writes.");
  module.def(
      "compile_program",
      [](const std::string& program, const py::object& tensors, const py::object& num_workers,
         const py::object& options, const py::object& progress, const py::object& ranks) {
        return std::make_unique<PyExecutable>(program, tensors, num_workers, options, progress,
                                              GivenRanks("compile_program", ranks));
      },
      "program"_a, "tensors"_a, py::kw_only(), "num_workers"_a = py::none(),
      "options"_a = py::none(), "progress"_a = py::none(), "ranks"_a = py::none());
}

}  // namespace tensor_ops
