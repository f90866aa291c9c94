#include "python/decode.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "arrays/foreign.h"
#include "binding/python.h"
#include "declaration/errors.h"
#include "decode/executor/checksum.h"
#include "decode/executor/executable.h"
#include "decode/program/activation_names.h"
#include "isa/isa.h"
#include "python/decode_settings.h"

namespace py = pybind11;

namespace tensor_ops {
namespace {

using decode::Executable;
using decode::StepArray;

// The program whose text was parsed last.
struct LastProgram {
  std::mutex in_use;
  std::string json;
  std::shared_ptr<const decode::Program> program;
  std::size_t parsed = 0;  // how many texts, wrong ones too
};

LastProgram& last_program() {
  static LastProgram last;
  return last;
}

// A program is loaded by several calls with the same text, which is parsed once.
std::shared_ptr<const decode::Program> program_of(const std::string& json) {
  LastProgram& last = last_program();
  const std::lock_guard<std::mutex> lock(last.in_use);
  if (!last.program || json != last.json) {
    ++last.parsed;
    last.program = std::make_shared<const decode::Program>(decode::parse_program(json));
    last.json = json;
  }
  return last.program;
}

std::size_t parsed_programs() {
  const std::lock_guard<std::mutex> lock(last_program().in_use);
  return last_program().parsed;
}

// A view by DLPack. bfloat16, which NumPy lacks, becomes uint16. NumPy itself views what has no
// floats.
Owned view_by_dlpack(const std::string& name, PyObject* object) {
  if (const dlpack::ExchangeAPI* api = exchange_api(Py_TYPE(object))) {
    require_all_in_memory("compile_program", name.c_str(), object, false, false);
    Array array;
    array.object = object;
    try {
      return view_of_foreign("compile_program", name.c_str(), *api, array);
    } catch (const TypeError&) {
    }
  }
  const py::object from_dlpack = py::module_::import("numpy").attr("from_dlpack");
  Owned view(PyObject_CallOneArg(from_dlpack.ptr(), object));
  if (!view)
    throw TypeError(text("compile_program: tensor '", name,
                         "' is not an array in host memory: ", take_error_text()));
  return view;
}

// Whether an array has the shape of a tensor and its dtype. bfloat16, which NumPy lacks, is uint16
// or a dtype that a package has added.
bool holds_numbers(const decode::Tensor& tensor, PyArrayObject* array) {
  const std::string name = tensor.type->name;
  const int type = PyArray_TYPE(array);
  const bool is_dtype = name == "f32"    ? type == NPY_FLOAT32
                        : name == "f16"  ? type == NPY_FLOAT16
                        : name == "bf16" ? type == NPY_UINT16 || type >= NPY_USERDEF
                                         : false;
  const npy_intp* const shape = PyArray_DIMS(array);
  const std::vector<std::size_t> given(shape, shape + PyArray_NDIM(array));
  return is_dtype && PyArray_ISNOTSWAPPED(array) && given == tensor.shape();
}

// A tensor's memory as a C-contiguous array of NumPy: its bytes or its numbers.
Owned as_numpy(const decode::Tensor& tensor, PyObject* object) {
  const std::string& name = tensor.name;
  Owned view = PyArray_Check(object) ? Owned::borrow(object) : view_by_dlpack(name, object);
  if (!PyArray_IS_C_CONTIGUOUS(view.array()))
    throw ValueError(text("compile_program: tensor '", name,
                          "' is not C-contiguous; pass numpy.ascontiguousarray() of it"));
  const bool is_bytes = PyArray_TYPE(view.array()) == NPY_UINT8;
  if (!is_bytes && !holds_numbers(tensor, view.array())) {
    const std::vector<std::size_t> expected = tensor.shape();
    const py::object shape = py::handle(view.get()).attr("shape");
    throw ValueError(text("compile_program: tensor '", name, "' must be ", tensor.type->name,
                          " of shape ", shape_text(tensor.dimensions, expected.data()),
                          " or its bytes as uint8, got ", dtype_attribute_text(object),
                          " of shape ", repr_text(shape.ptr())));
  }
  return view;
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

// Whether the memory of an array is a file that Python's mmap has mapped for reading alone.
bool is_mapped_file(PyArrayObject* array) {
  PyObject* owner = reinterpret_cast<PyObject*>(array);
  while (owner && PyArray_Check(owner))
    owner = PyArray_BASE(reinterpret_cast<PyArrayObject*>(owner));
  if (!owner || !PyMemoryView_Check(owner)) return false;
  const Py_buffer* const buffer = PyMemoryView_GET_BUFFER(owner);
  return buffer->readonly && buffer->obj && std::string(type_name(buffer->obj)) == "mmap.mmap";
}

decode::TensorBytes bytes_of(PyArrayObject* array) {
  return {reinterpret_cast<const unsigned char*>(PyArray_DATA(array)),
          static_cast<std::size_t>(PyArray_NBYTES(array)), is_mapped_file(array)};
}

py::dict dict_of(const std::vector<std::pair<const char*, std::size_t>>& memory) {
  py::dict sizes;
  for (const auto& [what, bytes] : memory) sizes[what] = bytes;
  return sizes;
}

template <class Function>
auto without_gil(Function function) {
  const py::gil_scoped_release released;
  return function();
}

// An object that keeps shared memory.
template <class T>
py::capsule owner_of(const std::shared_ptr<T>& memory) {
  using Shared = std::shared_ptr<T>;
  return py::capsule(new Shared(memory), [](void* shared) { delete static_cast<Shared*>(shared); });
}

// An executable and the arrays whose memory it reads at each step.
class PyExecutable {
 public:
  PyExecutable(const std::string& json, const py::object& tensors, const py::object& num_workers,
               const py::object& options, const py::object& progress, const py::object& packed,
               bool packs_in_steps, std::size_t packed_per_step) {
    decode::CompileOptions compile{workers_argument(num_workers), activations_option(options)};
    compile.packs_in_steps = packs_in_steps;
    compile.packed_per_step = packed_per_step;
    if (!packed.is_none()) {
      const Owned array = packed_argument("compile_program", packed);
      compile.packed = bytes_of(array.array());
      packed_ = packed;
    }
    decode::Program program = *program_of(json);
    std::vector<decode::TensorBytes> bytes(program.tensors.size());
    std::vector<Owned> views(program.tensors.size());
    std::vector<py::object> objects(program.tensors.size());
    const std::vector<bool> wanted = decode::tensors_to_compile(program, compile.packed.first);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const py::str name(program.tensors[i].name);
      if (!wanted[i] || !tensors.contains(name)) continue;
      objects[i] = tensors[name];
      views[i] = as_numpy(program.tensors[i], objects[i].ptr());
      bytes[i] = bytes_of(views[i].array());
    }
    // Between nodes a signal may end it.
    compile.progress = [&](std::size_t done, std::size_t all) {
      const py::gil_scoped_acquire acquired;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!progress.is_none()) progress(done, all);
    };
    executable_ = without_gil(
        [&] { return std::make_unique<Executable>(std::move(program), bytes, compile); });
    options_["activations"] = decode::activation_name(executable_->activations());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (!executable_->reads_from_caller(i) && !bytes[i].is_mapped_file) continue;
      auto& kept = executable_->reads_from_caller(i) ? kept_ : kept_until_packed_;
      kept.push_back(std::move(objects[i]));
      kept.push_back(py::reinterpret_steal<py::object>(views[i].release()));
    }
    drop_packed();
    make_arrays();
  }

  void run(std::int64_t num_tokens, std::int64_t num_selected) {
    // A negative number is as much out of range as the number it becomes.
    const auto tokens = static_cast<std::size_t>(num_tokens);
    const auto selected = static_cast<std::size_t>(num_selected);
    without_gil([&] { executable_->run(tokens, selected); });
    drop_packed();
  }

  py::array_t<std::int32_t> run_steps(std::int64_t num_tokens, std::int64_t num_steps,
                                      const std::string& output,
                                      const std::vector<std::vector<std::int32_t>>& end_tokens) {
    const auto tokens = static_cast<std::size_t>(num_tokens);
    const decode::StepsInRow steps{tokens, static_cast<std::size_t>(num_steps), output, end_tokens};
    const auto chosen = without_gil([&] { return executable_->run_steps(steps); });
    drop_packed();
    return py::array_t<std::int32_t>(std::vector<std::size_t>{chosen.size() / tokens, tokens},
                                     chosen.data());
  }

  py::object first_nan(std::int64_t num_tokens, std::int64_t num_selected, std::size_t slot) {
    const std::size_t found = without_gil([&] {
      return executable_->first_nan(static_cast<std::size_t>(num_tokens),
                                    static_cast<std::size_t>(num_selected), slot);
    });
    if (found == executable_->program().nodes.size()) return py::none();
    return py::int_(found);
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

  void close() {
    std::vector<py::object> kept, unpacked;
    const py::gil_scoped_release released;
    executable_->close();
    const std::lock_guard<std::mutex> lock(closing_);
    kept.swap(kept_);
    unpacked.swap(kept_until_packed_);
    kept.push_back(std::move(packed_));
  }

  py::dict arrays() const { return arrays_; }
  py::dict options() const { return options_; }
  std::size_t num_workers() const { return executable_->num_workers(); }
  std::size_t packed_size() const { return executable_->packed_size(); }
  bool is_packed() const { return executable_->is_packed(); }
  py::dict memory() const { return dict_of(executable_->memory()); }

 private:
  // Lets go of the arrays that are not read again.
  void drop_packed() {
    std::vector<py::object> dropped;
    const std::lock_guard<std::mutex> lock(closing_);
    if (executable_->is_packed()) dropped.swap(kept_until_packed_);
  }
  void make_arrays() {
    const auto& memory = executable_->arrays().memory();
    const py::capsule owner = owner_of(memory);
    for (const StepArray& array : executable_->arrays().all()) {
      const char* const type = array.type == StepArray::Type::kInt32     ? "int32"
                               : array.type == StepArray::Type::kFloat32 ? "float32"
                                                                         : "uint64";
      std::vector<std::size_t> shape{array.rows};
      if (array.columns > 0) shape.push_back(array.columns);
      arrays_[py::str(array.name)] =
          py::array(py::dtype(type), shape, memory.get() + array.offset, owner);
    }
  }

  std::unique_ptr<Executable> executable_;
  std::mutex closing_;
  std::vector<py::object> kept_, kept_until_packed_;
  py::object packed_;  // the caller's packed weights
  py::dict arrays_, options_;
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
                        const py::object& options) {
  return dict_of(Executable::memory_of(
      *program_of(json),
      {workers_argument(num_workers), activations_option(options), {}, {}, false}));
}

py::str packed_layout(const std::string& json) { return decode::packed_layout(*program_of(json)); }

std::uint64_t packed_checksum(const py::object& packed, const py::object& num_workers) {
  const std::size_t workers = workers_argument(num_workers);
  const Owned array = packed_argument("packed_checksum", packed);
  const decode::TensorBytes bytes = bytes_of(array.array());
  const py::gil_scoped_release released;
  return decode::checksum(bytes.first, bytes.bytes, workers);
}

}  // namespace

void add_decode(py::module_& module) {
  using namespace py::literals;
  module.def("supports_program", unsupported_reason, "program"_a);
  module.def("program_memory", program_memory, "program"_a, "num_workers"_a, "options"_a);
  module.def("packed_layout", packed_layout, "program"_a);
  module.def("packed_checksum", packed_checksum, "packed"_a, "num_workers"_a);
  module.def("parsed_programs", parsed_programs);
  py::class_<PyExecutable>(module, "Executable", "A program made ready to run.")
      .def("run", &PyExecutable::run, "num_tokens"_a, "num_selected"_a,
           "Run one step of what is in `arrays`.")
      .def("run_steps", &PyExecutable::run_steps, "num_tokens"_a, "num_steps"_a, "output"_a,
           "end_tokens"_a,
           "Run steps that are fed what `output` of the one before has; return what each chose.")
      .def("first_nan", &PyExecutable::first_nan, "num_tokens"_a, "num_selected"_a, "slot"_a,
           "Run the step again; return the first node whose result has NaN in a row of a slot.")
      .def("profile", &PyExecutable::profile, "num_tokens"_a, "num_selected"_a,
           "Run one step, and return how long each thread worked and waited for each node.")
      .def("read_bandwidth", &PyExecutable::read_bandwidth,
           "Read all packed weights with all threads; return bytes per second.")
      .def("hold_workers", &PyExecutable::hold_workers, "num_workers"_a,
           "Fix the number of workers that take part in a step; None leaves it to the executable.")
      .def("packed", &PyExecutable::packed,
           "Return the packed weights, which `compile_program` takes one behind the other.")
      .def("close", &PyExecutable::close, "Free all memory but that of `arrays`.")
      .def_property_readonly("arrays", &PyExecutable::arrays)
      .def_property_readonly("memory", &PyExecutable::memory)
      .def_property_readonly("options", &PyExecutable::options)
      .def_property_readonly("num_workers", &PyExecutable::num_workers)
      .def_property_readonly("packed_size", &PyExecutable::packed_size)
      .def_property_readonly("is_packed", &PyExecutable::is_packed);
  module.def(
      "compile_program",
      [](const std::string& program, const py::object& tensors, const py::object& num_workers,
         const py::object& options, const py::object& progress, const py::object& packed,
         bool packs_in_steps, std::size_t packed_per_step) {
        return std::make_unique<PyExecutable>(program, tensors, num_workers, options, progress,
                                              packed, packs_in_steps, packed_per_step);
      },
      "program"_a, "tensors"_a, py::kw_only(), "num_workers"_a = py::none(),
      "options"_a = py::none(), "progress"_a = py::none(), "packed"_a = py::none(),
      "packs_in_steps"_a = false, "packed_per_step"_a = 0);
}

}  // namespace tensor_ops
