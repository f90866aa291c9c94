// The Python class of executables, the same for all native backends, and how they are made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "binding/python/nanobind.h"
#include "declaration/errors.h"
#include "decode/serving/driver.h"

namespace tensor_ops {

// Adds supports_program(), program_memory(), compile_program() and the class Executable, and what
// else a package has for programs, which defines it.
void add_decode(nanobind::module_& module);

// An object that keeps shared memory.
template <class T>
nanobind::capsule owner_of(const std::shared_ptr<T>& memory) {
  using Shared = std::shared_ptr<T>;
  return nanobind::capsule(new Shared(memory),
                           [](void* shared) noexcept { delete static_cast<Shared*>(shared); });
}

// The bytes that are taken, by what takes them.
nanobind::dict dict_of(const decode::MemorySizes& memory);

// The Error that require() throws, which is the reason why a program cannot run; None without one.
template <class Require>
nanobind::object reason_of(Require require) {
  try {
    require();
  } catch (const Error& error) {
    return nanobind::str(error.what());
  }
  return nanobind::none();
}

// Calls a Python function, unless it is None, from a thread that has let go of the GIL. A signal
// may end the work between two calls. `progress` has to outlive the function.
decode::Progress progress_calls(const nanobind::object& progress);

// An int from 1 to `most`. Throws TypeError and ValueError, which name no function: those who load
// a model pass the number to several.
std::size_t workers_from(const nanobind::object& given, std::size_t most);

// An executor and its driver, with NumPy arrays over the arrays of its steps.
class BoundExecutable {
 public:
  BoundExecutable(std::unique_ptr<decode::Executor> executor,
                  std::shared_ptr<decode::Exchange> exchange);
  BoundExecutable(const BoundExecutable&) = delete;
  BoundExecutable& operator=(const BoundExecutable&) = delete;
  virtual ~BoundExecutable() = default;

  void run(std::int64_t num_tokens, std::int64_t num_selected);
  void run_draft(std::int64_t num_tokens, std::int64_t num_selected);
  nanobind::object run_steps(std::int64_t num_tokens, std::int64_t num_steps,
                             const std::string& output,
                             const std::vector<std::vector<std::int32_t>>& end_tokens);
  nanobind::object first_nan(std::int64_t num_tokens, std::int64_t num_selected, std::size_t slot);
  nanobind::dict profile(std::int64_t num_tokens, std::int64_t num_selected);
  double read_bandwidth();
  virtual void close();

  nanobind::dict arrays() const { return arrays_; }
  nanobind::dict options() const { return options_; }
  nanobind::dict memory() const { return dict_of(driver_.executor().memory()); }
  std::size_t num_workers() const { return driver_.executor().num_workers(); }
  // The numbers of the nodes that run together.
  std::vector<std::vector<std::size_t>> phases() const;

 protected:
  // Called with the GIL.
  virtual void after_step() {}

  decode::Driver driver_;

 private:
  nanobind::dict arrays_, options_;
};

// The class of a backend's executables, which are BoundExecutables.
template <class Bound>
nanobind::class_<Bound> executable_class(nanobind::module_& module) {
  using namespace nanobind::literals;
  return nanobind::class_<Bound>(module, "Executable", "A program made ready to run.")
      .def("run", &Bound::run, "num_tokens"_a, "num_selected"_a,
           "Run one step of what is in `arrays`.")
      .def("run_draft", &Bound::run_draft, "num_tokens"_a, "num_selected"_a,
           "Run one draft step of what is in `arrays`, the outputs of the last step among them.")
      .def("run_steps", &Bound::run_steps, "num_tokens"_a, "num_steps"_a, "output"_a,
           "end_tokens"_a,
           "Run steps that are fed what `output` of the one before has; return what each chose.")
      .def("first_nan", &Bound::first_nan, "num_tokens"_a, "num_selected"_a, "slot"_a,
           "Run the step again; return the first node whose result has NaN in a row of a slot.")
      .def("profile", &Bound::profile, "num_tokens"_a, "num_selected"_a,
           "Run one step, and return how long each worker worked and waited for each node.")
      .def("read_bandwidth", &Bound::read_bandwidth,
           "Read all weights without computing; return bytes per second.")
      .def("close", &Bound::close, "Free all memory but that of `arrays`.")
      .def_prop_ro("arrays", &Bound::arrays)
      .def_prop_ro("memory", &Bound::memory)
      .def_prop_ro("options", &Bound::options)
      .def_prop_ro("num_workers", &Bound::num_workers)
      .def_prop_ro("phases", &Bound::phases);
}

}  // namespace tensor_ops
