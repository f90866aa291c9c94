// Steps in a row: each step is fed the tokens that the step before it chose. Here are the parts of
// run_steps() that all executors share.
// Tested by tests/decode/test_steps_in_a_row.py.
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
  // By token of a step: the step that chooses one of these is the last.
  std::vector<std::vector<std::int32_t>> end_tokens;
};

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
