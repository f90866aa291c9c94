#include "binding/decode_executable.h"

#include "binding/python.h"
#include "declaration/errors.h"
#include "decode/program/activation_names.h"

namespace py = pybind11;

namespace tensor_ops {

using decode::StepArray;

py::dict dict_of(const std::vector<std::pair<const char*, std::size_t>>& memory) {
  py::dict sizes;
  for (const auto& [what, bytes] : memory) sizes[what] = bytes;
  return sizes;
}

std::function<void(std::size_t, std::size_t)> progress_calls(const py::object& progress) {
  return [&progress](std::size_t done, std::size_t all) {
    const AcquiredGil acquired;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!progress.is_none()) progress(done, all);
  };
}

std::size_t workers_from(const py::object& given, std::size_t most) {
  const Owned index(PyNumber_Index(given.ptr()));
  if (!index || PyBool_Check(given.ptr())) {
    PyErr_Clear();
    throw TypeError(text("num_workers must be an int or None, got ", type_name(given.ptr())));
  }
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(index.get(), &overflow);
  if (overflow != 0 || value < 1 || static_cast<std::size_t>(value) > most)
    throw ValueError(
        text("num_workers must be from 1 to ", most, ", got ", repr_text(given.ptr())));
  return static_cast<std::size_t>(value);
}

void BoundExecutor::run(std::int64_t num_tokens, std::int64_t num_selected) {
  // A negative number is as much out of range as the number it becomes.
  const auto tokens = static_cast<std::size_t>(num_tokens);
  const auto selected = static_cast<std::size_t>(num_selected);
  without_gil([&] { executor().run(tokens, selected); });
  after_step();
}

py::array_t<std::int32_t> BoundExecutor::run_steps(
    std::int64_t num_tokens, std::int64_t num_steps, const std::string& output,
    const std::vector<std::vector<std::int32_t>>& end_tokens) {
  const auto tokens = static_cast<std::size_t>(num_tokens);
  const decode::StepsInRow steps{tokens, static_cast<std::size_t>(num_steps), output, end_tokens};
  const auto chosen = without_gil([&] { return executor().run_steps(steps); });
  after_step();
  return py::array_t<std::int32_t>(std::vector<std::size_t>{chosen.size() / tokens, tokens},
                                   chosen.data());
}

py::object BoundExecutor::first_nan(std::int64_t num_tokens, std::int64_t num_selected,
                                    std::size_t slot) {
  const std::size_t found = without_gil([&] {
    return executor().first_nan(static_cast<std::size_t>(num_tokens),
                                static_cast<std::size_t>(num_selected), slot);
  });
  if (found == executor().program().nodes.size()) return py::none();
  return py::int_(found);
}

std::vector<std::vector<std::size_t>> BoundExecutor::phases() const {
  std::vector<std::vector<std::size_t>> found;
  for (const decode::Phase& phase : executor().phases()) found.push_back(phase.nodes);
  return found;
}

void BoundExecutor::close() {
  without_gil([&] { executor().close(); });
}

void BoundExecutor::make_properties() {
  options_["activations"] = decode::activation_name(executor().activations());
  const auto& memory = executor().arrays().memory();
  const py::capsule owner = owner_of(memory);
  for (const StepArray& array : executor().arrays().all()) {
    const char* const type = array.type == StepArray::Type::kInt32     ? "int32"
                             : array.type == StepArray::Type::kFloat32 ? "float32"
                                                                       : "uint64";
    std::vector<std::size_t> shape{array.rows};
    if (array.columns > 0) shape.push_back(array.columns);
    arrays_[py::str(array.name)] =
        py::array(py::dtype(type), shape, memory.get() + array.offset, owner);
  }
}

}  // namespace tensor_ops
