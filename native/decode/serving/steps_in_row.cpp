// Tested by tests/decode/test_steps_in_a_row.py.
#include <algorithm>
#include <chrono>

#include "declaration/errors.h"
#include "decode/serving/executor.h"

namespace tensor_ops::decode {
namespace {

// Throws unless all steps can run: the rows that they are divided into are checked one by one.
void check_all(const Executor& executor, const StepsInRow& steps) {
  StepArrays arrays = executor.arrays();  // which notes positions while it checks
  Step step = arrays.step();
  step.num_tokens = step.num_selected = steps.num_tokens;
  check_for("run_steps", [&] {
    arrays.check(step);
    arrays.check_steps(step, steps.num_steps);
  });
}

}  // namespace

const std::int32_t* chosen_tokens(const Program& program, const StepArrays& arrays,
                                  const StepsInRow& steps) {
  const Value* const output = find_output(program, steps.output);
  if (!output || !output->is_int32 || output->columns != 1)
    throw ValueError(text("run_steps: '", steps.output,
                          "' is no output of the program with one int32 in a row"));
  const std::size_t most = program.limits.max_tokens;
  if (steps.num_tokens < 1 || steps.num_tokens > most)
    throw ValueError(text("run_steps: num_tokens must be from 1 to ", most, ", got ",
                          static_cast<std::int64_t>(steps.num_tokens)));
  if (steps.end_tokens.size() != steps.num_tokens)
    throw ValueError(text("run_steps: end_tokens must have a list for each of ", steps.num_tokens,
                          " tokens, got ", steps.end_tokens.size()));
  return reinterpret_cast<const std::int32_t*>(arrays.value(steps.output));
}

bool ends_row(const StepArrays& arrays, const StepsInRow& steps, const std::int32_t* chosen) {
  for (std::size_t i = 0; i < steps.num_tokens; ++i) {
    const auto& ends = steps.end_tokens[i];
    if (!arrays.is_word(chosen[i]) || std::find(ends.begin(), ends.end(), chosen[i]) != ends.end())
      return true;
  }
  return false;
}

void feed_chosen(const Step& step, const std::int32_t* chosen, std::size_t count) {
  std::copy_n(chosen, count, step.tokens);
  for (std::size_t i = 0; i < count; ++i) ++step.positions[i];
}

std::vector<std::int32_t> run_steps_within(Executor& executor, const StepsInRow& steps,
                                           double max_seconds) {
  using Clock = std::chrono::steady_clock;
  const StepArrays& arrays = executor.arrays();
  const std::size_t count = steps.num_tokens;
  const std::int32_t* const chosen = chosen_tokens(executor.program(), arrays, steps);
  check_all(executor, steps);
  StepsInRow row = steps;
  row.num_steps = 1;
  std::vector<std::int32_t> all;
  const auto start = Clock::now();
  for (;;) {
    const std::vector<std::int32_t> of_row = executor.run_steps(row);
    all.insert(all.end(), of_row.begin(), of_row.end());
    const std::size_t done = all.size() / count;
    const double passed = std::chrono::duration<double>(Clock::now() - start).count();
    const double room = (max_seconds - passed) * static_cast<double>(done) / passed;
    if (done == steps.num_steps || ends_row(arrays, steps, chosen) || !(room >= 1)) return all;
    const std::size_t left = steps.num_steps - done;
    row.num_steps = room < static_cast<double>(left) ? static_cast<std::size_t>(room) : left;
    feed_chosen(arrays.step(), chosen, count);
  }
}

}  // namespace tensor_ops::decode
