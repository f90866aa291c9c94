// Programs of a model's decode step, as Python sees them.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "binding/decode/executable.h"
#include "binding/decode/program.h"
#include "binding/decode/ranks.h"
#include "binding/decode/tensors.h"
#include "declaration/errors.h"
#include "decode/executor/executable.h"
#include "decode/executor/runnable.h"
#include "decode/kernels/plan.h"
#include "decode/program/activation_names.h"
#include "launch/device.h"
#include "python/host_device.h"

namespace nb = nanobind;

namespace tensor_ops {
namespace {

// The device for host arrays. Throws UnavailableError where it cannot be used.
int device_of_programs(const char* function) {
  try {
    return usable_device(chosen_host_device()).index;
  } catch (const UnavailableError& error) {
    throw UnavailableError(text(function, ": tensor_ops_cuda is unavailable: ", error.what()));
  }
}

// The handle of a stream, as libraries in Python give it.
void* stream_from(const nb::handle& value) {
  if (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr()))
    throw TypeError(
        text("stream must be the handle of a stream, an int, got ", type_name(value.ptr())));
  void* const handle = PyLong_AsVoidPtr(value.ptr());
  if (PyErr_Occurred()) throw PythonError();
  return handle;
}

// Whether tensor cores multiply is said by use_cutlass_kernel and by the activations, which may not
// contradict each other.
void take_options(const nb::object& options, decode::CompileOptions& compile) {
  if (options.is_none()) return;
  std::optional<bool> by_kernel, by_activations;
  for (const auto [key, value] : dict_from(options)) {
    const std::string name = text_of(key);
    if (name == "activations") {
      const auto type = decode::activation_type(text_of(value));
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

decode::CompileOptions compile_options(const char* function, const nb::object& num_workers,
                                       const nb::object& options, const GivenRanks& ranks) {
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

std::unique_ptr<BoundExecutable> compile_program(const Text& json, const nb::object& tensors,
                                                 const nb::object& num_workers,
                                                 const nb::object& options,
                                                 const nb::object& progress,
                                                 const nb::object& ranks) {
  const GivenRanks among("compile_program", ranks);
  decode::CompileOptions compile = compile_options("compile_program", num_workers, options, among);
  compile.progress = progress_calls(progress);
  const auto program = program_of(json);
  decode::require_runnable(*program, compile.device);
  const GivenTensors given =
      given_tensors(*program, tensors, std::vector<bool>(program->tensors.size(), true));
  compile.exchange = among.exchange(*program, decode::kMostTokens);
  auto made = std::make_unique<BoundExecutable>(
      made_for_ranks(compile.exchange,
                     [&] { return decode::make_executable(*program, given.bytes, compile); }),
      compile.exchange);
  made->options()["use_cutlass_kernel"] = compile.uses_tensor_cores;
  return made;
}

nb::object unsupported_reason(const Text& json) {
  return reason_of([&] {
    const int device = usable_device(chosen_host_device()).index;
    decode::require_runnable(*program_of(json), device);
  });
}

nb::dict program_memory(const Text& json, const nb::object& num_workers, const nb::object& options,
                        const nb::object& ranks) {
  const auto program = program_of(json);
  const GivenRanks among("program_memory", ranks);
  return dict_of(
      decode::memory_of(*program, compile_options("program_memory", num_workers, options, among)));
}

std::size_t program_memory_limit() {
  return free_memory(device_of_programs("program_memory_limit"));
}

}  // namespace

void add_decode(nb::module_& module) {
  using namespace nb::literals;
  module.def("supports_program", unsupported_reason, "program"_a);
  module.def("program_memory", program_memory, "program"_a, any_argument("num_workers"),
             any_argument("options"), any_argument("ranks"));
  module.def("program_memory_limit", program_memory_limit);
  module.def("most_workers",
             [] { return decode::most_blocks(device_of_programs("most_workers")); });
  executable_class<BoundExecutable>(module);
  module.def("compile_program", compile_program, "program"_a, any_argument("tensors"),
             any_argument("num_workers"), any_argument("options"), any_argument("progress"),
             any_argument("ranks"));
}

}  // namespace tensor_ops
