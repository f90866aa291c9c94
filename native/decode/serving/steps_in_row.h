// Steps of which each is fed the tokens that the one before has chosen: what is the same of them
// for every executor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/program/program.h"
#include "decode/serving/step_arrays.h"

namespace tensor_ops::decode {

class Executor;

// Each has one token of each slot that takes part.
struct StepsInRow {
  std::size_t num_tokens, num_steps;
  std::string output;  // where a step writes the tokens that it chooses
  std::vector<std::vector<std::int32_t>> end_tokens;  // of each token: after which it is the last
};

// The tokens that a step has chosen. Throws ValueError where the output has no tokens, and unless
// there is a list of end tokens for each.
const std::int32_t* chosen_tokens(const Program& program, const StepArrays& arrays,
                                  const StepsInRow& steps);

// Whether a step that has chosen these tokens is the last, as none can follow it or none is wanted.
bool ends_row(const StepArrays& arrays, const StepsInRow& steps, const std::int32_t* chosen);

// Makes the step in the arrays the one that follows it.
void feed_chosen(const StepArrays& arrays, const std::int32_t* chosen, std::size_t count);

// Runs steps in as many rows as it takes to begin none, but for the first step, that would end
// after max_seconds if steps took as long as those before: how many a row has is known before it
// begins. Returns what each step has chosen. Throws as run_steps() of the executor does.
std::vector<std::int32_t> run_steps_within(Executor& executor, const StepsInRow& steps,
                                           double max_seconds);

}  // namespace tensor_ops::decode
