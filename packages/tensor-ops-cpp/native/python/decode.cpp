// Programs of a model's decode step, as Python sees them.
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "binding/decode/executable.h"
#include "binding/decode/program.h"
#include "binding/decode/ranks.h"
#include "binding/decode/tensors.h"
#include "binding/python/python.h"
#include "declaration/errors.h"
#include "decode/executor/checksum.h"
#include "decode/executor/executable.h"
#include "decode/program/activation_names.h"
#include "isa/isa.h"
#include "memory/pages.h"
#include "threads/threads.h"

namespace py = pybind11;

namespace tensor_ops {
void add_decode_product(py::module_& module);  // decode_product.cpp

namespace {

using decode::Executable;

decode::ActivationType activations_option(const py::object& options) {
  decode::ActivationType activations = decode::ActivationType::kInt8x2;
  if (options.is_none()) return activations;
  for (const auto& [key, value] : py::dict(options)) {
    const auto name = py::str(key).cast<std::string>();
    if (name != "activations")
      throw ValueError(text("unknown option '", name, "'; valid: activations"));
    activations = decode::activation_type(py::str(value).cast<std::string>());
  }
  return activations;
}

std::size_t workers_argument(const py::object& given) {
  if (given.is_none()) return static_cast<std::size_t>(num_threads());
  return workers_from(given, static_cast<std::size_t>(sensible_threads(1 << 20)));
}

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
class PyExecutable final : public BoundExecutable {
 public:
  PyExecutable(std::unique_ptr<Executable> executor, std::shared_ptr<decode::Exchange> exchange,
               GivenTensors given, py::object packed)
      : BoundExecutable(std::move(executor), std::move(exchange)), packed_(std::move(packed)) {
    for (std::size_t i = 0; i < given.bytes.size(); ++i) {
      const bool is_read = executable().reads_from_caller(i);
      if (!is_read && !given.bytes[i].is_mapped_file) continue;
      auto& kept = is_read ? kept_ : kept_until_packed_;
      kept.push_back(std::move(given.objects[i]));
      kept.push_back(std::move(given.views[i]));
    }
    after_step();
  }

  void hold_workers(const py::object& num_workers) {
    const std::size_t count =
        num_workers.is_none() ? 0 : workers_from(num_workers, this->num_workers());
    in_turn("hold_workers", [&](Executable& executable) { executable.hold_workers(count); });
  }

  // The arrays share the memory with the executable, and outlive its close().
  py::list packed() {
    py::list arrays;
    for (const auto& part : in_turn("packed", [](Executable& each) { return each.packed(); })) {
      py::array array(py::dtype("uint8"), {part.bytes}, part.first,
                      part.owner ? py::object(owner_of(part.owner)) : packed_);
      array.attr("flags").attr("writeable") = false;
      arrays.append(array);
    }
    return arrays;
  }

  // What pages, or a state, hold, as rows of bytes; and the other way round.
  py::array_t<std::uint8_t> read_pages(const std::vector<std::size_t>& pages) {
    return read("read_pages", pages, executable().page_bytes(), &Executable::read_page);
  }
  void write_pages(const std::vector<std::size_t>& pages, const py::object& rows) {
    write("write_pages", pages, executable().page_bytes(), &Executable::write_page, rows);
  }
  py::array_t<std::uint8_t> read_state(std::size_t state) {
    return read("read_state", {state}, executable().state_bytes(), &Executable::read_state);
  }
  void write_state(std::size_t state, const py::object& row) {
    write("write_state", {state}, executable().state_bytes(), &Executable::write_state, row);
  }

  void close() override {
    std::vector<py::object> kept, unpacked;
    const ReleasedGil released;
    driver_.close();
    const std::lock_guard<std::mutex> lock(closing_);
    kept.swap(kept_);
    unpacked.swap(kept_until_packed_);
    kept.push_back(std::move(packed_));
  }

  std::size_t packed_size() const { return executable().packed_size(); }
  bool is_packed() const { return executable().is_packed(); }

 private:
  const Executable& executable() const {
    return static_cast<const Executable&>(driver_.executor());
  }
  template <class Work>
  std::invoke_result_t<Work, Executable&> in_turn(const char* where, Work work) {
    const ReleasedGil released;
    return driver_.in_turn(where, [&](decode::Executor& executor) {
      return work(static_cast<Executable&>(executor));
    });
  }
  template <class Read>
  py::array_t<std::uint8_t> read(const char* where, const std::vector<std::size_t>& numbers,
                                 std::size_t bytes, Read read_one) {
    py::array_t<std::uint8_t> rows({numbers.size(), bytes});
    unsigned char* to = rows.mutable_data();
    in_turn(where, [&](Executable& executable) {
      decode::check_for(where, [&] {
        for (const std::size_t number : numbers) {
          (executable.*read_one)(number, to);
          to += bytes;
        }
      });
    });
    return rows;
  }
  template <class Write>
  void write(const char* where, const std::vector<std::size_t>& numbers, std::size_t bytes,
             Write write_one, const py::object& given) {
    const Owned rows(PyArray_FROM_OF(given.ptr(), NPY_ARRAY_C_CONTIGUOUS));
    if (!rows) throw py::error_already_set();
    const auto size = static_cast<std::size_t>(PyArray_NBYTES(rows.array()));
    if (PyArray_TYPE(rows.array()) != NPY_UINT8 || size != numbers.size() * bytes)
      throw ValueError(text(where, ": expected ", numbers.size() * bytes,
                            " bytes as uint8, got an array of ", size, " bytes of ",
                            dtype_attribute_text(given.ptr())));
    const auto* from = static_cast<const unsigned char*>(PyArray_DATA(rows.array()));
    in_turn(where, [&](Executable& executable) {
      decode::check_for(where, [&] {
        for (const std::size_t number : numbers) {
          (executable.*write_one)(number, from);
          from += bytes;
        }
      });
    });
  }
  // Lets go of the arrays that are not read again.
  void after_step() override {
    std::vector<py::object> dropped;
    const std::lock_guard<std::mutex> lock(closing_);
    if (is_packed()) dropped.swap(kept_until_packed_);
  }

  std::mutex closing_;
  std::vector<py::object> kept_, kept_until_packed_;
  py::object packed_;  // the caller's packed weights
};

std::unique_ptr<PyExecutable> compile_program(const std::string& json, const py::object& tensors,
                                              const py::object& num_workers,
                                              const py::object& options, const py::object& progress,
                                              const py::object& ranks, const py::object& packed,
                                              const py::object& packs_in_steps) {
  const GivenRanks among("compile_program", ranks);
  decode::CompileOptions compile = compile_options(num_workers, options, among);
  compile.progress = progress_calls(progress);
  if (!PyLong_Check(packs_in_steps.ptr()) || packs_in_steps < py::int_(0))
    throw TypeError(
        text("compile_program: packs_in_steps must be a bool or a number of bytes, got ",
             repr_text(packs_in_steps.ptr())));
  compile.packs_in_steps = packs_in_steps.cast<bool>();
  if (!PyBool_Check(packs_in_steps.ptr()))
    compile.packed_per_step = packs_in_steps.cast<std::size_t>();
  if (!packed.is_none())
    compile.packed = bytes_of(packed_argument("compile_program", packed).array());
  decode::Program program = *program_of(json);
  GivenTensors given =
      given_tensors(program, tensors, decode::tensors_to_compile(program, compile.packed.first));
  compile.exchange = among.exchange(program);
  std::size_t let_go = 0;  // bytes
  compile.let_go = [&](const std::vector<std::size_t>& tensors) {
    let_go += let_go_of(given, tensors);
    if (let_go < kReturnedAtOnce) return;
    return_freed_memory();
    let_go = 0;
  };
  auto executor = made_for_ranks(compile.exchange, [&] {
    return std::make_unique<Executable>(std::move(program), given.bytes, compile);
  });
  if (let_go > 0) return_freed_memory();
  return std::make_unique<PyExecutable>(std::move(executor), compile.exchange, std::move(given),
                                        packed);
}

py::object unsupported_reason(const std::string& json) {
  return reason_of([&] {
    if (!isa_choice().reason.empty()) throw UnavailableError(isa_choice().reason);
    decode::require_kernels(*program_of(json));
  });
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
             "ranks"_a);
  module.def("packed_layout", packed_layout, "program"_a);
  module.def("packed_checksum", packed_checksum, "packed"_a, "num_workers"_a);
  module.def("parsed_programs", parsed_programs);
  executable_class<PyExecutable>(module)
      .def("hold_workers", &PyExecutable::hold_workers, "num_workers"_a,
           "Fix the number of workers that take part in a step; None leaves it to the executable.")
      .def("packed", &PyExecutable::packed,
           "Return the packed weights, which `compile_program` takes one behind the other.")
      .def("read_pages", &PyExecutable::read_pages, "pages"_a,
           "Return what pages of the caches hold, a row of bytes for each.")
      .def("write_pages", &PyExecutable::write_pages, "pages"_a, "rows"_a,
           "Give pages of the caches what others held.")
      .def("read_state", &PyExecutable::read_state, "state"_a,
           "Return what a state of all nodes holds, as a row of bytes.")
      .def("write_state", &PyExecutable::write_state, "state"_a, "row"_a,
           "Give a state of all nodes what another one held.")
      .def_property_readonly("packed_size", &PyExecutable::packed_size)
      .def_property_readonly("is_packed", &PyExecutable::is_packed);
  module.def("compile_program", compile_program, "program"_a, "tensors"_a, "num_workers"_a,
             "options"_a, "progress"_a, "ranks"_a, "packed"_a = py::none(),
             "packs_in_steps"_a = false);
  add_decode_product(module);
}

}  // namespace tensor_ops
