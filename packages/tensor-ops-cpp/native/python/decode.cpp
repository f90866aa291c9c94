#include "python/decode.h"

#include <pybind11/numpy.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "binding/decode_executable.h"
#include "binding/decode_program.h"
#include "binding/decode_ranks.h"
#include "binding/decode_tensors.h"
#include "binding/python.h"
#include "declaration/errors.h"
#include "decode/executor/checksum.h"
#include "decode/executor/executable.h"
#include "decode/ranks/exchange_sizes.h"
#include "isa/isa.h"
#include "memory/pages.h"
#include "python/decode_settings.h"

namespace py = pybind11;

namespace tensor_ops {
namespace {

using decode::Executable;

// Packed weights, in one contiguous vector of bytes.
Owned packed_argument(const char* function, const py::object& given) {
  Owned bytes(PyArray_FROM_OF(given.ptr(), NPY_ARRAY_C_CONTIGUOUS));
  if (!bytes) throw py::error_already_set();
  if (PyArray_TYPE(bytes.array()) != NPY_UINT8 || PyArray_NDIM(bytes.array()) != 1 ||
      bytes.get() != given.ptr())
    throw TypeError(text(function, ": packed must be a contiguous vector of uint8, got ",
                         dtype_attribute_text(given.ptr()), " of type ", type_name(given.ptr())));
  return bytes;
}

// Freed memory is returned to the system by so many bytes of arrays, since that takes time.
constexpr std::size_t kReturnedAtOnce = std::size_t{32} << 20;

// Drops arrays, whose memory is free for what is packed next if the caller has no other reference
// to them. Returns the bytes of those that are in no mapped file.
std::size_t let_go_of(GivenTensors& given, const std::vector<std::size_t>& tensors) {
  const AcquiredGil held;
  std::size_t bytes = 0;
  for (const std::size_t i : tensors) {
    given.objects[i] = given.views[i] = py::object();
    if (!given.bytes[i].is_mapped_file) bytes += given.bytes[i].bytes;
  }
  return bytes;
}

decode::CompileOptions compile_options(const py::object& num_workers, const py::object& options,
                                       const GivenRanks& ranks) {
  decode::CompileOptions compile{workers_argument(num_workers), activations_option(options)};
  compile.rank = ranks.rank();
  compile.world_size = ranks.world_size();
  return compile;
}

// An executable and the arrays whose memory it reads at each step.
class PyExecutable : public BoundExecutor {
 public:
  PyExecutable(const std::string& json, const py::object& tensors, const py::object& num_workers,
               const py::object& options, const py::object& progress, const py::object& packed,
               bool packs_in_steps, std::size_t packed_per_step, const GivenRanks& ranks) {
    decode::CompileOptions compile = compile_options(num_workers, options, ranks);
    compile.progress = progress_calls(progress);
    compile.packs_in_steps = packs_in_steps;
    compile.packed_per_step = packed_per_step;
    if (!packed.is_none()) {
      const Owned array = packed_argument("compile_program", packed);
      compile.packed = bytes_of(array.array());
      packed_ = packed;
    }
    decode::Program program = *program_of(json);
    GivenTensors given =
        given_tensors(program, tensors, decode::tensors_to_compile(program, compile.packed.first));
    decode::check_ranks(program, ranks.rank(), ranks.world_size());
    compile.exchange = ranks.exchange(program);
    std::size_t let_go = 0;  // bytes
    compile.let_go = [&](const std::vector<std::size_t>& tensors) {
      let_go += let_go_of(given, tensors);
      if (let_go < kReturnedAtOnce) return;
      return_freed_memory();
      let_go = 0;
    };
    executable_ = made_for_ranks(compile.exchange, [&] {
      return without_gil(
          [&] { return std::make_unique<Executable>(std::move(program), given.bytes, compile); });
    });
    if (let_go > 0) return_freed_memory();
    for (std::size_t i = 0; i < given.bytes.size(); ++i) {
      if (!executable_->reads_from_caller(i) && !given.bytes[i].is_mapped_file) continue;
      auto& kept = executable_->reads_from_caller(i) ? kept_ : kept_until_packed_;
      kept.push_back(std::move(given.objects[i]));
      kept.push_back(std::move(given.views[i]));
    }
    after_step();
    make_properties();
  }

  py::dict profile(std::int64_t num_tokens, std::int64_t num_selected) {
    const decode::StepProfile times = without_gil([&] {
      return executable_->profile(static_cast<std::size_t>(num_tokens),
                                  static_cast<std::size_t>(num_selected));
    });
    const std::vector<std::size_t> shape{times.workers, times.work.size() / times.workers};
    using namespace py::literals;
    return py::dict("seconds"_a = times.whole, "work"_a = py::array_t(shape, times.work.data()),
                    "wait"_a = py::array_t(shape, times.wait.data()));
  }

  double read_bandwidth() {
    return without_gil([&] { return executable_->read_bandwidth(); });
  }

  void hold_workers(const py::object& num_workers) {
    const std::size_t count =
        num_workers.is_none() ? 0 : workers_from(num_workers, executable_->num_workers());
    without_gil([&] { executable_->hold_workers(count); });
  }

  // The arrays share the memory with the executable, and outlive its close().
  py::list packed() const {
    py::list arrays;
    for (const auto& part : without_gil([&] { return executable_->packed(); })) {
      py::array array(py::dtype("uint8"), {part.bytes}, part.first,
                      part.owner ? py::object(owner_of(part.owner)) : packed_);
      array.attr("flags").attr("writeable") = false;
      arrays.append(array);
    }
    return arrays;
  }

  void close() override {
    std::vector<py::object> kept, unpacked;
    const ReleasedGil released;
    executable_->close();
    const std::lock_guard<std::mutex> lock(closing_);
    kept.swap(kept_);
    unpacked.swap(kept_until_packed_);
    kept.push_back(std::move(packed_));
  }

  std::size_t packed_size() const { return executable_->packed_size(); }
  bool is_packed() const { return executable_->is_packed(); }

 private:
  decode::Executor& executor() const override { return *executable_; }
  // Lets go of the arrays that are not read again.
  void after_step() override {
    std::vector<py::object> dropped;
    const std::lock_guard<std::mutex> lock(closing_);
    if (executable_->is_packed()) dropped.swap(kept_until_packed_);
  }

  std::unique_ptr<Executable> executable_;
  std::mutex closing_;
  std::vector<py::object> kept_, kept_until_packed_;
  py::object packed_;  // the caller's packed weights
};

py::object unsupported_reason(const std::string& json) {
  if (!isa_choice().reason.empty()) return py::str(isa_choice().reason);
  try {
    decode::require_kernels(*program_of(json));
  } catch (const Error& error) {
    return py::str(error.what());
  }
  return py::none();
}

py::dict program_memory(const std::string& json, const py::object& num_workers,
                        const py::object& options, const py::object& ranks) {
  return dict_of(Executable::memory_of(
      *program_of(json),
      compile_options(num_workers, options, GivenRanks("program_memory", ranks))));
}

py::str packed_layout(const std::string& json) { return decode::packed_layout(*program_of(json)); }

std::uint64_t packed_checksum(const py::object& packed, const py::object& num_workers) {
  const std::size_t workers = workers_argument(num_workers);
  const Owned array = packed_argument("packed_checksum", packed);
  const decode::TensorBytes bytes = bytes_of(array.array());
  const ReleasedGil released;
  return decode::checksum(bytes.first, bytes.bytes, workers);
}

}  // namespace

void add_decode(py::module_& module) {
  using namespace py::literals;
  module.def("supports_program", unsupported_reason, "program"_a);
  module.def("program_memory", program_memory, "program"_a, "num_workers"_a, "options"_a,
             "ranks"_a = py::none());
  module.def("packed_layout", packed_layout, "program"_a);
  module.def("packed_checksum", packed_checksum, "packed"_a, "num_workers"_a);
  module.def("parsed_programs", parsed_programs);
  executable_class<PyExecutable>(module)
      .def("profile", &PyExecutable::profile, "num_tokens"_a, "num_selected"_a,
           "Run one step, and return how long each thread worked and waited for each node.")
      .def("read_bandwidth", &PyExecutable::read_bandwidth,
           "Read all packed weights with all threads; return bytes per second.")
      .def("hold_workers", &PyExecutable::hold_workers, "num_workers"_a,
           "Fix the number of workers that take part in a step; None leaves it to the executable.")
      .def("packed", &PyExecutable::packed,
           "Return the packed weights, which `compile_program` takes one behind the other.")
      .def_property_readonly("packed_size", &PyExecutable::packed_size)
      .def_property_readonly("is_packed", &PyExecutable::is_packed);
  module.def(
      "compile_program",
      [](const std::string& program, const py::object& tensors, const py::object& num_workers,
         const py::object& options, const py::object& progress, const py::object& packed,
         bool packs_in_steps, std::size_t packed_per_step, const py::object& ranks) {
        return std::make_unique<PyExecutable>(program, tensors, num_workers, options, progress,
                                              packed, packs_in_steps, packed_per_step,
                                              GivenRanks("compile_program", ranks));
      },
      "program"_a, "tensors"_a, py::kw_only(), "num_workers"_a = py::none(),
      "options"_a = py::none(), "progress"_a = py::none(), "packed"_a = py::none(),
      "packs_in_steps"_a = false, "packed_per_step"_a = 0, "ranks"_a = py::none());
}

}  // namespace tensor_ops
