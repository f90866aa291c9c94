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
#include "binding/python/arrays.h"
#include "declaration/errors.h"
#include "decode/executor/checksum.h"
#include "decode/executor/executable.h"
#include "decode/program/activation_names.h"
#include "isa/isa.h"
#include "memory/pages.h"
#include "threads/threads.h"

namespace nb = nanobind;

namespace tensor_ops {
void add_decode_product(nb::module_& module);  // decode_product.cpp

namespace {

using decode::Executable;

decode::ActivationType activations_option(const nb::object& options) {
  decode::ActivationType activations = decode::ActivationType::kInt8x2;
  if (options.is_none()) return activations;
  for (const auto [key, value] : dict_from(options)) {
    const std::string name = text_of(key);
    if (name != "activations")
      throw ValueError(text("unknown option '", name, "'; valid: activations"));
    activations = decode::activation_type(text_of(value));
  }
  return activations;
}

std::size_t workers_argument(const nb::object& given) {
  if (given.is_none()) return static_cast<std::size_t>(num_threads());
  return workers_from(given, static_cast<std::size_t>(sensible_threads(1 << 20)));
}

// Packed weights, in one contiguous vector of bytes.
Owned packed_argument(const char* function, const nb::object& given) {
  Owned bytes(PyArray_FROM_OF(given.ptr(), NPY_ARRAY_C_CONTIGUOUS));
  if (!bytes) throw nb::python_error();
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
    given.objects[i] = given.views[i] = nb::object();
    if (!given.bytes[i].is_mapped_file) bytes += given.bytes[i].bytes;
  }
  return bytes;
}

decode::CompileOptions compile_options(const nb::object& num_workers, const nb::object& options,
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
               GivenTensors given, nb::object packed)
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

  void hold_workers(const nb::object& num_workers) {
    const std::size_t count =
        num_workers.is_none() ? 0 : workers_from(num_workers, this->num_workers());
    in_turn("hold_workers", [&](Executable& executable) { executable.hold_workers(count); });
  }

  // The arrays share the memory with the executable, and outlive its close().
  nb::list packed() {
    nb::list arrays;
    for (const auto& part : in_turn("packed", [](Executable& each) { return each.packed(); })) {
      const nb::object owner = part.owner ? nb::object(owner_of(part.owner)) : packed_;
      Owned array = array_over(NPY_UINT8, {part.bytes}, const_cast<unsigned char*>(part.first),
                               Owned::borrow(owner.ptr()));
      PyArray_CLEARFLAGS(array.array(), NPY_ARRAY_WRITEABLE);
      arrays.append(object_of(std::move(array)));
    }
    return arrays;
  }

  // What pages, or a state, hold, as rows of bytes; and the other way round.
  nb::object read_pages(const std::vector<std::size_t>& pages) {
    return read("read_pages", pages, executable().page_bytes(), &Executable::read_page);
  }
  void write_pages(const std::vector<std::size_t>& pages, const nb::object& rows) {
    write("write_pages", pages, executable().page_bytes(), &Executable::write_page, rows);
  }
  nb::object read_state(std::size_t state) {
    return read("read_state", {state}, executable().state_bytes(), &Executable::read_state);
  }
  void write_state(std::size_t state, const nb::object& row) {
    write("write_state", {state}, executable().state_bytes(), &Executable::write_state, row);
  }

  void close() override {
    std::vector<nb::object> kept, unpacked;
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
  nb::object read(const char* where, const std::vector<std::size_t>& numbers, std::size_t bytes,
                  Read read_one) {
    Owned rows = empty_array(NPY_UINT8, {numbers.size(), bytes});
    auto* to = data_of<unsigned char>(rows);
    in_turn(where, [&](Executable& executable) {
      decode::check_for(where, [&] {
        for (const std::size_t number : numbers) {
          (executable.*read_one)(number, to);
          to += bytes;
        }
      });
    });
    return object_of(std::move(rows));
  }
  template <class Write>
  void write(const char* where, const std::vector<std::size_t>& numbers, std::size_t bytes,
             Write write_one, const nb::object& given) {
    const Owned rows(PyArray_FROM_OF(given.ptr(), NPY_ARRAY_C_CONTIGUOUS));
    if (!rows) throw nb::python_error();
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
    std::vector<nb::object> dropped;
    const std::lock_guard<std::mutex> lock(closing_);
    if (is_packed()) dropped.swap(kept_until_packed_);
  }

  std::mutex closing_;
  std::vector<nb::object> kept_, kept_until_packed_;
  nb::object packed_;  // the caller's packed weights
};

std::unique_ptr<PyExecutable> compile_program(const Text& json, const nb::object& tensors,
                                              const nb::object& num_workers,
                                              const nb::object& options, const nb::object& progress,
                                              const nb::object& ranks, const nb::object& packed,
                                              const nb::object& packs_in_steps) {
  const GivenRanks among("compile_program", ranks);
  decode::CompileOptions compile = compile_options(num_workers, options, among);
  compile.progress = progress_calls(progress);
  if (!PyLong_Check(packs_in_steps.ptr()) || packs_in_steps < nb::int_(0))
    throw TypeError(
        text("compile_program: packs_in_steps must be a bool or a number of bytes, got ",
             repr_text(packs_in_steps.ptr())));
  compile.packs_in_steps = PyObject_IsTrue(packs_in_steps.ptr()) != 0;
  if (!PyBool_Check(packs_in_steps.ptr()))
    compile.packed_per_step = nb::cast<std::size_t>(packs_in_steps);
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

nb::object unsupported_reason(const Text& json) {
  return reason_of([&] {
    if (!isa_choice().reason.empty()) throw UnavailableError(isa_choice().reason);
    decode::require_kernels(*program_of(json));
  });
}

nb::dict program_memory(const Text& json, const nb::object& num_workers, const nb::object& options,
                        const nb::object& ranks) {
  return dict_of(Executable::memory_of(
      *program_of(json),
      compile_options(num_workers, options, GivenRanks("program_memory", ranks))));
}

std::string packed_layout(const Text& json) { return decode::packed_layout(*program_of(json)); }

std::uint64_t packed_checksum(const nb::object& packed, const nb::object& num_workers) {
  const std::size_t workers = workers_argument(num_workers);
  const Owned array = packed_argument("packed_checksum", packed);
  const decode::TensorBytes bytes = bytes_of(array.array());
  const ReleasedGil released;
  return decode::checksum(bytes.first, bytes.bytes, workers);
}

}  // namespace

void add_decode(nb::module_& module) {
  using namespace nb::literals;
  module.def("supports_program", unsupported_reason, "program"_a);
  module.def("program_memory", program_memory, "program"_a, any_argument("num_workers"),
             any_argument("options"), any_argument("ranks"));
  module.def("packed_layout", packed_layout, "program"_a);
  module.def("packed_checksum", packed_checksum, any_argument("packed"),
             any_argument("num_workers"));
  module.def("parsed_programs", parsed_programs);
  executable_class<PyExecutable>(module)
      .def("hold_workers", &PyExecutable::hold_workers, any_argument("num_workers"),
           "Fix the number of workers that take part in a step; None leaves it to the executable.")
      .def("packed", &PyExecutable::packed,
           "Return the packed weights, which `compile_program` takes one behind the other.")
      .def("read_pages", &PyExecutable::read_pages, "pages"_a,
           "Return what pages of the caches hold, a row of bytes for each.")
      .def("write_pages", &PyExecutable::write_pages, "pages"_a, any_argument("rows"),
           "Give pages of the caches what others held.")
      .def("read_state", &PyExecutable::read_state, "state"_a,
           "Return what a state of all nodes holds, as a row of bytes.")
      .def("write_state", &PyExecutable::write_state, "state"_a, any_argument("row"),
           "Give a state of all nodes what another one held.")
      .def_prop_ro("packed_size", &PyExecutable::packed_size)
      .def_prop_ro("is_packed", &PyExecutable::is_packed);
  module.def("compile_program", compile_program, "program"_a, any_argument("tensors"),
             any_argument("num_workers"), any_argument("options"), any_argument("progress"),
             any_argument("ranks"), any_argument("packed") = nb::none(),
             any_argument("packs_in_steps") = false);
  add_decode_product(module);
}

}  // namespace tensor_ops
