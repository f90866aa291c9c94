// An executor runs the steps of a program that it has made ready: the caller fills the arrays of a
// step and calls run(). The arrays are in the memory of the process. Where all else lies, and who
// computes, is the executor's own business.
// Tested by tests/decode/test_dummy_executor.py.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "decode/program/activation_type.h"
#include "decode/program/fusion.h"
#include "decode/program/program.h"
#include "decode/serving/step_arrays.h"

namespace tensor_ops::decode {

// Steps in a row: each step is fed the tokens that the step before it chose. It has one token of
// every slot that takes part.
struct StepsInRow {
  std::size_t num_tokens, num_steps;
  std::string output;  // where a step writes the tokens that it chooses
  // By token of a step: the step that chooses one of these is the last.
  std::vector<std::vector<std::int32_t>> end_tokens;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Runs one step of what is in the arrays. Calls of several threads take turns. Throws ValueError
  // before anything is written, and Error after close() and in a forked child.
  virtual void run(std::size_t num_tokens, std::size_t num_selected) = 0;
  // Runs steps of what is in the arrays, and writes `tokens` and `positions` for each step after
  // the first. Stops after num_steps, and after a step that chose an end token or one that cannot
  // be fed; nothing else decides, such as the time. Returns the tokens that each step chose. Throws
  // as run() does, before the first step if any of the steps is wrong.
  virtual std::vector<std::int32_t> run_steps(const StepsInRow& steps) = 0;
  // Runs the step that is in the arrays once more, which changes nothing. Returns the main node of
  // the first phase whose result has NaN in a row of a slot; the number of nodes if there is none.
  virtual std::size_t first_nan(std::size_t num_tokens, std::size_t num_selected,
                                std::size_t slot) = 0;
  // Frees all but the arrays. A second call does nothing.
  virtual void close() = 0;

  virtual const Program& program() const = 0;
  virtual const StepArrays& arrays() const = 0;
  // The bytes that are taken, by what takes them.
  virtual const std::vector<std::pair<const char*, std::size_t>>& memory() const = 0;
  // The type to which activations are rounded before products with stored weights.
  virtual ActivationType activations() const = 0;
  // How many compute a step together, such as threads.
  virtual std::size_t num_workers() const = 0;
  // Which nodes run together.
  virtual const std::vector<Phase>& phases() const = 0;
  // Null in the process that made the executor. In a forked child, a word for what the child lacks,
  // such as "threads". Takes no lock.
  virtual const char* lost_by_fork() const = 0;
};

// Parts of run_steps() that all executors share: steps_in_row.cpp.

// Where a step writes the tokens that it chooses. Throws ValueError where the output has no tokens,
// and unless there is a list of end tokens for each.
const std::int32_t* chosen_tokens(const Program& program, const StepArrays& arrays,
                                  const StepsInRow& steps);

// Whether the row ends with a step that has chosen these tokens, since one of them is an end token
// or cannot be fed.
bool ends_row(const StepArrays& arrays, const StepsInRow& steps, const std::int32_t* chosen);

// Writes the chosen tokens and the positions after the present ones to the arrays of a step.
void feed_chosen(const Step& step, const std::int32_t* chosen, std::size_t count);

// Runs the steps by several calls of executor.run_steps(), the first with one step. Begins no steps
// that would end after max_seconds if they took as long as those before. Returns the tokens that
// each step chose. Throws as executor.run_steps() does.
std::vector<std::int32_t> run_steps_within(Executor& executor, const StepsInRow& steps,
                                           double max_seconds);

}  // namespace tensor_ops::decode
