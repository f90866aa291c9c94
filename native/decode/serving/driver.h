// The interface to callers of an executor. A driver lets threads take turns, checks each step, runs
// steps in a row, and runs none after a failure, after close() or in a forked child. So an executor
// (executor.h) has nothing to do but to compute.
//
// Tested by tests/decode/executors/test_steps_in_a_row.py and
// tests/decode/executors/test_wrong_steps.py.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "declaration/shared.h"
#include "decode/ranks/exchange.h"
#include "decode/serving/executor.h"

namespace tensor_ops::decode {

class TENSOR_OPS_SHARED Driver {
 public:
  // exchange: by which steps of the executor meet those of other ranks; null for one rank.
  explicit Driver(std::unique_ptr<Executor> executor, std::shared_ptr<Exchange> exchange = nullptr);

  // All of these but close() throw Error where no step can run any more. Those that take a step
  // throw ValueError, before anything is written, for one that is wrong.

  // Runs one step of what is in the arrays.
  void run(std::size_t num_tokens, std::size_t num_selected);
  // Runs one draft step of what is in the arrays, the outputs of the last step among them. Throws
  // ValueError where the program has no draft, or the executor runs none.
  void run_draft(std::size_t num_tokens, std::size_t num_selected);
  // Runs steps of what is in the arrays, and writes `tokens` and `positions` for each step after
  // the first. Stops after num_steps, after a step that chose an end token or one that cannot be
  // fed, and before a step that would end after max_seconds if it took as long as those before.
  // Returns the tokens that each step chose. Throws before the first step if any of num_steps is
  // wrong.
  std::vector<std::int32_t> run_steps(const StepsInRow& steps);
  // Runs the step that is in the arrays once more, which changes nothing. Returns the main node of
  // the first phase whose result has NaN in a row of a slot, on any rank; the number of nodes if
  // there is none.
  std::size_t first_nan(std::size_t num_tokens, std::size_t num_selected, std::size_t slot);
  // Runs a step as run() does, and measures it.
  StepProfile profile(std::size_t num_tokens, std::size_t num_selected);
  double read_bandwidth();
  // Frees all but the arrays. A second call does nothing.
  void close();

  // Calls work(executor) in turn with steps, for what an executor can do besides these. Errors
  // name `where`.
  template <class Work>
  auto in_turn(const char* where, Work work) {
    const auto lock = lock_open(where);
    return work(*executor_);
  }

  // For what it says of itself, which needs no turn.
  const Executor& executor() const { return *executor_; }
  const Program& program() const { return executor_->program(); }
  const StepArrays& arrays() const { return executor().arrays(); }

 private:
  std::unique_lock<std::mutex> lock_open(const char* where);
  // Calls work() while step_ is the step of this size, which has been checked.
  template <class Work>
  auto in_step(const char* where, std::size_t num_tokens, std::size_t num_selected, Work work,
               bool is_draft = false);
  void begin_step();
  // Writes the chosen tokens and the positions after the present ones to the arrays.
  void feed(const std::int32_t* chosen);
  bool is_last(const StepsInRow& steps, const std::int32_t* chosen) const;

  const std::unique_ptr<Executor> executor_;
  std::shared_ptr<Exchange> exchange_;
  std::mutex running_;
  Step step_;
  bool is_closed_ = false;
  std::string failure_;  // of the executor; those of exchanges are in exchange_
};

}  // namespace tensor_ops::decode
