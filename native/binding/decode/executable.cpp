#include "binding/decode/executable.h"

#include "binding/python/arrays.h"
#include "decode/program/activation_names.h"

namespace nb = nanobind;

namespace tensor_ops {
namespace {

using decode::StepArray;

// A negative number is as much out of range as the number it becomes.
std::size_t size(std::int64_t number) { return static_cast<std::size_t>(number); }

}  // namespace

nb::dict dict_of(const decode::MemorySizes& memory) {
  nb::dict sizes;
  for (const auto& [what, bytes] : memory) sizes[nb::str(what)] = bytes;
  return sizes;
}

decode::Progress progress_calls(const nb::object& progress) {
  return [&progress](std::size_t done, std::size_t all) {
    call_back([&] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!progress.is_none()) progress(done, all);
    });
  };
}

std::size_t workers_from(const nb::object& given, std::size_t most) {
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

BoundExecutable::BoundExecutable(std::unique_ptr<decode::Executor> executor,
                                 std::shared_ptr<decode::Exchange> exchange)
    : driver_(std::move(executor), std::move(exchange)) {
  options_["activations"] = decode::activation_name(driver_.executor().activations());
  const auto& memory = driver_.arrays().memory();
  const nb::capsule owner = owner_of(memory);
  for (const StepArray& array : driver_.arrays().all()) {
    const int type = array.type == StepArray::Type::kInt32     ? NPY_INT32
                     : array.type == StepArray::Type::kFloat32 ? NPY_FLOAT32
                                                               : NPY_UINT64;
    Shape shape{array.rows};
    if (array.columns > 0) shape.push_back(array.columns);
    arrays_[nb::cast(array.name)] =
        object_of(array_over(type, shape, memory.get() + array.offset, Owned::borrow(owner.ptr())));
  }
}

void BoundExecutable::run(std::int64_t num_tokens, std::int64_t num_selected) {
  without_gil([&] { driver_.run(size(num_tokens), size(num_selected)); });
  after_step();
}

void BoundExecutable::run_draft(std::int64_t num_tokens, std::int64_t num_selected) {
  without_gil([&] { driver_.run_draft(size(num_tokens), size(num_selected)); });
  after_step();
}

nb::object BoundExecutable::run_steps(std::int64_t num_tokens, std::int64_t num_steps,
                                      const std::string& output,
                                      const std::vector<std::vector<std::int32_t>>& end_tokens) {
  const std::size_t tokens = size(num_tokens);
  const decode::StepsInRow steps{tokens, size(num_steps), output, end_tokens};
  const auto chosen = without_gil([&] { return driver_.run_steps(steps); });
  after_step();
  return object_of(copied_array({chosen.size() / tokens, tokens}, chosen));
}

nb::object BoundExecutable::first_nan(std::int64_t num_tokens, std::int64_t num_selected,
                                      std::size_t slot) {
  const std::size_t found =
      without_gil([&] { return driver_.first_nan(size(num_tokens), size(num_selected), slot); });
  if (found == driver_.program().nodes.size()) return nb::none();
  return nb::int_(found);
}

nb::dict BoundExecutable::profile(std::int64_t num_tokens, std::int64_t num_selected) {
  const decode::StepProfile times =
      without_gil([&] { return driver_.profile(size(num_tokens), size(num_selected)); });
  const Shape shape{times.workers, times.work.size() / times.workers};
  nb::dict result;
  result["seconds"] = times.whole;
  result["work"] = object_of(copied_array(shape, times.work));
  result["wait"] = object_of(copied_array(shape, times.wait));
  return result;
}

double BoundExecutable::read_bandwidth() {
  return without_gil([&] { return driver_.read_bandwidth(); });
}

std::vector<std::vector<std::size_t>> BoundExecutable::phases() const {
  std::vector<std::vector<std::size_t>> found;
  for (const decode::Phase& phase : driver_.executor().phases()) found.push_back(phase.nodes);
  return found;
}

void BoundExecutable::close() {
  without_gil([&] { driver_.close(); });
}

}  // namespace tensor_ops
