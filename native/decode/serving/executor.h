// Implemented by packages that run programs. An executor plans where all of one program lies, loads
// the tensors, takes a step, and leaves the outputs in the arrays of the step, which are in the
// memory of the process. Where all else lies, and who computes, is its own business. What a caller
// sees of it, such as checks, turns and failures, is the Driver's: driver.h.
// Tested by tests/decode/executors/test_dummy_executor.py.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "declaration/errors.h"
#include "decode/program/activation_type.h"
#include "decode/program/fusion.h"
#include "decode/program/program.h"
#include "decode/serving/step_arrays.h"

namespace tensor_ops::decode {

// Bytes, by what takes them.
using MemorySizes = std::vector<std::pair<const char*, std::size_t>>;

// Called with the bytes of weights that are loaded, and of all. May throw.
using Progress = std::function<void(std::size_t, std::size_t)>;

// Steps in a row: each step is fed the tokens that the step before it chose. It has one token of
// every slot that takes part.
struct StepsInRow {
  std::size_t num_tokens, num_steps;
  std::string output;  // where a step writes the tokens that it chooses
  // By token of a step: the step that chooses one of these is the last.
  std::vector<std::vector<std::int32_t>> end_tokens;
  double max_seconds = 0;  // 0: no limit
};

// How the workers spent a step, in seconds. A worker waits for the last one at the end of a step:
// that is what its rows of `work` and `wait` lack of `whole`.
struct StepProfile {
  double whole;
  std::size_t workers;  // 1 where they are measured together
  // A row for each worker: its work in each node, and what it waited before and within it. What a
  // phase takes is that of its main node.
  std::vector<double> work, wait;
};

// Thrown by a step after which there can be none; the text names no function.
struct TENSOR_OPS_SHARED StepFailure : Error {
  using Error::Error;
};

class TENSOR_OPS_SHARED Executor {
 public:
  explicit Executor(Program program) : program_(std::move(program)), arrays_(program_) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  // Takes one step of what is in the arrays, which has been checked. One call at a time.
  virtual void take_step(const Step& step) = 0;
  // Frees all but the arrays. No step follows.
  virtual void release() = 0;

  // The type to which activations are rounded before products with stored weights.
  virtual ActivationType activations() const = 0;
  // How many compute a step together, such as threads.
  virtual std::size_t num_workers() const = 0;

  // The rest is for executors that can do more.

  // Takes up to `most` of the steps in a row at once, such as in one launch, and appends the tokens
  // that each chose to `chosen`. The arrays still have the tokens and positions of the first one.
  // Returns false, and takes none, where the steps have to be taken one by one.
  virtual bool take_steps(const Step&, const StepsInRow& /*steps*/, std::size_t /*most*/,
                          std::vector<std::int32_t>& /*chosen*/) {
    return false;
  }
  // Takes a step again, which changes nothing. Returns the main node of the first phase whose
  // result has NaN in a row of a slot; the number of nodes if there is none.
  virtual std::size_t first_nan(const Step&, std::size_t /*slot*/) { return program_.nodes.size(); }
  // Takes a step, and measures it.
  virtual StepProfile profile(const Step&) { return {0, 1, {}, {}}; }
  // The bytes per second at which the workers read the weights without computing with them.
  virtual double read_bandwidth() { return 0; }
  // Null in the process that made the executor. In a forked child, a word for what the child lacks,
  // such as "threads". Takes no lock.
  virtual const char* lost_by_fork() const { return nullptr; }

  const Program& program() const { return program_; }
  StepArrays& arrays() { return arrays_; }
  const StepArrays& arrays() const { return arrays_; }
  const MemorySizes& memory() const { return memory_; }
  // Which nodes run together.
  const std::vector<Phase>& phases() const { return phases_; }

 protected:
  const Program program_;
  StepArrays arrays_;  // which the executor allocates as soon as all memory is known to be there
  MemorySizes memory_;
  std::vector<Phase> phases_;
};

}  // namespace tensor_ops::decode
