#include "decode/serving/driver.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tensor_ops::decode {
namespace {

// Where a step writes the tokens that it chooses. Throws ValueError where the output has no tokens,
// and unless there is a list of end tokens for each.
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

}  // namespace

Driver::Driver(std::unique_ptr<Executor> executor, std::shared_ptr<Exchange> exchange)
    : executor_(std::move(executor)),
      exchange_(std::move(exchange)),
      step_(executor_->arrays().step()) {}

std::unique_lock<std::mutex> Driver::lock_open(const char* where) {
  // Before the lock, which may have been held when the process forked.
  if (const char* const lost = executor_->lost_by_fork())
    throw Error(text(where,
                     ": the process was forked after compile_program(), and the child has none of "
                     "its ",
                     lost, "; compile the program again in the child"));
  std::unique_lock<std::mutex> lock(running_);
  if (is_closed_) throw Error(text(where, ": the executable is closed; compile the program again"));
  const auto require_no = [where](const std::string& failure, const char* how) {
    if (!failure.empty())
      throw Error(
          text(where, ": an earlier step failed: ", failure, "; compile the program again, ", how));
  };
  require_no(failure_, "in a new process if that fails");
  if (exchange_) require_no(exchange_->failure(), "on all ranks");
  return lock;
}

template <class Work>
auto Driver::in_step(const char* where, std::size_t num_tokens, std::size_t num_selected, Work work,
                     bool is_draft) {
  const auto lock = lock_open(where);
  Step step = step_;
  step.num_tokens = num_tokens;
  step.num_selected = num_selected;
  step.is_draft = is_draft;
  check_for(where, [&] { executor_->arrays().check(step); });
  step_ = step;
  begin_step();
  try {
    return work();
  } catch (const StepFailure& failure) {
    failure_ = failure.what();
    throw Error(text(where, ": ", failure_));
  }
}

void Driver::begin_step() {
  ++step_.number;
  if (exchange_) exchange_->begin_step(step_);
}

void Driver::run(std::size_t num_tokens, std::size_t num_selected) {
  in_step("run", num_tokens, num_selected, [&] { executor_->take_step(step_); });
}

void Driver::run_draft(std::size_t num_tokens, std::size_t num_selected) {
  if (!program().has_draft()) throw ValueError("run_draft: the program has no draft");
  in_step("run_draft", num_tokens, num_selected, [&] { executor_->take_step(step_); }, true);
}

std::vector<std::int32_t> Driver::run_steps(const StepsInRow& steps) {
  using Clock = std::chrono::steady_clock;
  const std::size_t count = steps.num_tokens;
  const std::int32_t* const chosen = chosen_tokens(program(), arrays(), steps);
  return in_step("run_steps", count, count, [&] {
    check_for("run_steps", [&] { arrays().check_steps(step_, steps.num_steps); });
    const auto start = Clock::now();
    std::vector<std::int32_t> all;
    for (std::size_t next = steps.max_seconds > 0 ? 1 : steps.num_steps;;) {
      const std::size_t before = all.size();
      if (!executor_->take_steps(step_, steps, next, all)) {
        executor_->take_step(step_);
        all.insert(all.end(), chosen, chosen + count);
      }
      for (std::size_t fed = before; fed + count < all.size(); fed += count) feed(&all[fed]);
      const std::size_t done = all.size() / count;
      next = steps.num_steps - done;
      if (steps.max_seconds > 0) {
        const double passed = std::chrono::duration<double>(Clock::now() - start).count();
        const double room = (steps.max_seconds - passed) * static_cast<double>(done) / passed;
        if (!(room >= static_cast<double>(next)))
          next = room >= 1 ? static_cast<std::size_t>(room) : 0;
      }
      if (next == 0 || is_last(steps, chosen)) return all;
      feed(chosen);
      begin_step();
    }
  });
}

void Driver::feed(const std::int32_t* chosen) {
  std::copy_n(chosen, step_.num_tokens, step_.tokens);
  for (std::size_t i = 0; i < step_.num_tokens; ++i) ++step_.positions[i];
  std::copy_n(step_.state_after, step_.num_tokens, step_.state_before);
}

bool Driver::is_last(const StepsInRow& steps, const std::int32_t* chosen) const {
  for (std::size_t i = 0; i < steps.num_tokens; ++i) {
    const auto& ends = steps.end_tokens[i];
    if (!arrays().is_word(chosen[i]) ||
        std::find(ends.begin(), ends.end(), chosen[i]) != ends.end())
      return true;
  }
  return false;
}

std::size_t Driver::first_nan(std::size_t num_tokens, std::size_t num_selected, std::size_t slot) {
  return in_step("first_nan", num_tokens, num_selected, [&] {
    const std::size_t node = executor_->first_nan(step_, slot);
    // Ranks find NaN in different nodes, where some have it in their share of a value and others in
    // the sum of all shares.
    return exchange_ ? exchange_->least(node, program().nodes.size()) : node;
  });
}

StepProfile Driver::profile(std::size_t num_tokens, std::size_t num_selected) {
  return in_step("profile", num_tokens, num_selected, [&] { return executor_->profile(step_); });
}

double Driver::read_bandwidth() {
  return in_turn("read_bandwidth", [](Executor& executor) { return executor.read_bandwidth(); });
}

void Driver::close() {
  std::unique_lock<std::mutex> lock(running_, std::defer_lock);
  if (!executor_->lost_by_fork()) lock.lock();
  if (std::exchange(is_closed_, true)) return;
  if (exchange_) exchange_->leave("has closed its executable");
  exchange_.reset();
  executor_->release();
}

}  // namespace tensor_ops::decode
