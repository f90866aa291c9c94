// Steps in a row, each of which is fed the tokens that the step before it chose: the parts of
// run_steps() that all executors share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/program/program.h"
#include "decode/serving/step_arrays.h"

namespace tensor_ops::decode {

class Executor;

// Each step has one token of every slot that takes part.
struct StepsInRow {
  std::size_t num_tokens, num_steps;
  std::string output;  // where a step writes the tokens that it chooses
  std::vector<std::vector<std::int32_t>>
      end_tokens;  // by token: a step that chooses one is the last
};

// The tokens that a step has chosen. Throws ValueError where the output has no tokens, and unless
// there is a list of end tokens for each.
const std::int32_t* chosen_tokens(const Program& program, const StepArrays& arrays,
                                  const StepsInRow& steps);

// Whether the row ends with a step that has chosen these tokens: one of them is an end token, or is
// none that can be fed.
bool ends_row(const StepArrays& arrays, const StepsInRow& steps, const std::int32_t* chosen);

// Writes the chosen tokens and the positions after the present ones to the arrays of a step.
void feed_chosen(const Step& step, const std::int32_t* chosen, std::size_t count);

// Runs the steps in one or more rows, and begins none that would end after max_seconds if its steps
// took as long as those before. The first row is one step. Returns the tokens that each step chose.
// Throws as run_steps() of the executor does.
std::vector<std::int32_t> run_steps_within(Executor& executor, const StepsInRow& steps,
                                           double max_seconds);

}  // namespace tensor_ops::decode
