// What the executables of all native backends are to Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "binding/python.h"
#include "decode/serving/executor.h"

namespace tensor_ops {

template <class Function>
auto without_gil(Function function) {
  const ReleasedGil released;
  return function();
}

// An object that keeps shared memory.
template <class T>
pybind11::capsule owner_of(const std::shared_ptr<T>& memory) {
  using Shared = std::shared_ptr<T>;
  return pybind11::capsule(new Shared(memory),
                           [](void* shared) { delete static_cast<Shared*>(shared); });
}

// The bytes that are taken, by what takes them.
pybind11::dict dict_of(const std::vector<std::pair<const char*, std::size_t>>& memory);

// Calls a Python function, unless it is None, from a thread that has let go of the GIL. A signal
// may end the work between two calls. `progress` has to outlive the function.
std::function<void(std::size_t, std::size_t)> progress_calls(const pybind11::object& progress);

// An int from 1 to `most`. Throws TypeError and ValueError, which name no function: those who load
// a model pass the number to several.
std::size_t workers_from(const pybind11::object& given, std::size_t most);

// An executor with NumPy arrays over the arrays of its steps.
class BoundExecutor {
 public:
  BoundExecutor() = default;
  BoundExecutor(const BoundExecutor&) = delete;
  BoundExecutor& operator=(const BoundExecutor&) = delete;
  virtual ~BoundExecutor() = default;

  void run(std::int64_t num_tokens, std::int64_t num_selected);
  pybind11::array_t<std::int32_t> run_steps(
      std::int64_t num_tokens, std::int64_t num_steps, const std::string& output,
      const std::vector<std::vector<std::int32_t>>& end_tokens);
  pybind11::object first_nan(std::int64_t num_tokens, std::int64_t num_selected, std::size_t slot);
  virtual void close();

  pybind11::dict arrays() const { return arrays_; }
  pybind11::dict options() const { return options_; }
  pybind11::dict memory() const { return dict_of(executor().memory()); }
  std::size_t num_workers() const { return executor().num_workers(); }
  // The numbers of the nodes that run together.
  std::vector<std::vector<std::size_t>> phases() const;

 protected:
  // What is called at each step.
  virtual decode::Executor& executor() const = 0;
  // Called with the GIL.
  virtual void after_step() {}
  // Makes the arrays and the options; to be called once there is an executor.
  void make_properties();

  pybind11::dict options_;

 private:
  pybind11::dict arrays_;
};

// The class of a backend's executables, which are derived from BoundExecutor, with the methods of
// those of all backends but profile().
template <class Bound>
pybind11::class_<Bound> executable_class(pybind11::module_& module) {
  using namespace pybind11::literals;
  return pybind11::class_<Bound>(module, "Executable", "A program made ready to run.")
      .def("run", &Bound::run, "num_tokens"_a, "num_selected"_a,
           "Run one step of what is in `arrays`.")
      .def("run_steps", &Bound::run_steps, "num_tokens"_a, "num_steps"_a, "output"_a,
           "end_tokens"_a,
           "Run steps that are fed what `output` of the one before has; return what each chose.")
      .def("first_nan", &Bound::first_nan, "num_tokens"_a, "num_selected"_a, "slot"_a,
           "Run the step again; return the first node whose result has NaN in a row of a slot.")
      .def("close", &Bound::close, "Free all memory but that of `arrays`.")
      .def_property_readonly("arrays", &Bound::arrays)
      .def_property_readonly("memory", &Bound::memory)
      .def_property_readonly("options", &Bound::options)
      .def_property_readonly("num_workers", &Bound::num_workers)
      .def_property_readonly("phases", &Bound::phases);
}

}  // namespace tensor_ops
