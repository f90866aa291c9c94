// The smallest executor of a package: the token after one is a function of it and its position, and
// weights are not read. With native/decode/ it is a library that runs exported models.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "declaration/errors.h"
#include "decode/interface/decode_interface.h"
#include "decode/interface/executor_factory.h"

namespace tensor_ops::decode {
namespace {

class Dummy final : public Executor {
 public:
  explicit Dummy(const Program& program) : program_(program), arrays_(program_) {
    std::shared_ptr<unsigned char> memory(
        static_cast<unsigned char*>(std::aligned_alloc(64, arrays_.bytes())), std::free);
    std::fill_n(memory.get(), arrays_.bytes(), 0);
    arrays_.place(memory);
    memory_ = {{"arrays", arrays_.bytes()}};
  }

  void run(std::size_t num_tokens, std::size_t num_selected) override {
    const std::lock_guard<std::mutex> lock(running_);
    check("run", num_tokens, num_selected);
    take_step(num_tokens, num_selected);
  }

  std::vector<std::int32_t> run_steps(const StepsInRow& steps) override {
    const std::size_t count = steps.num_tokens;
    const std::int32_t* const chosen = chosen_tokens(program_, arrays_, steps);
    const std::lock_guard<std::mutex> lock(running_);
    const Step first = check("run_steps", count, count);
    check_for("run_steps", [&] { arrays_.check_steps(first, steps.num_steps); });
    std::vector<std::int32_t> all;
    for (std::size_t done = 1;; ++done) {
      take_step(count, count);
      all.insert(all.end(), chosen, chosen + count);
      if (done == steps.num_steps || ends_row(arrays_, steps, chosen)) return all;
      feed_chosen(first, chosen, count);
    }
  }

  std::size_t first_nan(std::size_t, std::size_t, std::size_t) override {
    return program_.nodes.size();
  }
  void close() override {}
  const Program& program() const override { return program_; }
  const StepArrays& arrays() const override { return arrays_; }
  const std::vector<std::pair<const char*, std::size_t>>& memory() const override {
    return memory_;
  }
  ActivationType activations() const override { return ActivationType::kFloat32; }
  std::size_t num_workers() const override { return 1; }
  const std::vector<Phase>& phases() const override { return phases_; }
  const char* lost_by_fork() const override { return process_ == getpid() ? nullptr : "luck"; }

 private:
  Step check(const char* where, std::size_t num_tokens, std::size_t num_selected) {
    Step step = arrays_.step();
    step.num_tokens = num_tokens;
    step.num_selected = num_selected;
    check_for(where, [&] { arrays_.check(step); });
    return step;
  }

  void take_step(std::size_t num_tokens, std::size_t num_selected) {
    const Step step = arrays_.step();
    for (const std::size_t output : program_.outputs) {
      const Value& value = program_.values[output];
      const bool is_selected = value.rows == Rows::kSelected;
      for (std::size_t row = 0; row < (is_selected ? num_selected : num_tokens); ++row) {
        const std::size_t token = is_selected ? static_cast<std::size_t>(step.selected[row]) : row;
        const auto next = static_cast<std::size_t>(3 * step.tokens[token] + step.positions[token]) %
                          arrays_.num_words();
        unsigned char* const to = arrays_.value(value.name) + 4 * row * value.columns;
        if (value.is_int32) {
          *reinterpret_cast<std::int32_t*>(to) = static_cast<std::int32_t>(next);
        } else {
          std::fill_n(reinterpret_cast<float*>(to), value.columns, 0.0f);
          reinterpret_cast<float*>(to)[next] = 1;
        }
      }
    }
  }

  const pid_t process_ = getpid();
  const Program program_;
  StepArrays arrays_;
  std::vector<std::pair<const char*, std::size_t>> memory_;
  std::vector<Phase> phases_;
  std::mutex running_;
};

}  // namespace

int most_workers() { return 1; }

std::unique_ptr<Executor> make_executor(const ExportedModel& model, const ExecutorOptions&) {
  return std::make_unique<Dummy>(model.program);
}

}  // namespace tensor_ops::decode

extern "C" tensor_ops_status tensor_ops_cpp_backend(std::uint32_t,
                                                    const tensor_ops_backend** backend,
                                                    tensor_ops_error*) {
  static tensor_ops_backend table{};
  table.size = sizeof table;
  table.name = "dummy";
  table.unavailable_reason = [] { return static_cast<const char*>(nullptr); };
  table.decode = &tensor_ops::decode_interface;
  *backend = &table;
  return TENSOR_OPS_OK;
}
