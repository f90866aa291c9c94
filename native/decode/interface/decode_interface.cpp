// Implements tensor_ops/decode.h: models that are open, their sequences and their steps.
#include "decode/interface/decode_interface.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/guarded.h"
#include "declaration/errors.h"
#include "decode/files/exported_model.h"
#include "decode/program/activation_names.h"
#include "decode/serving/sequences.h"

// Functions that are given the same model take turns.
struct tensor_ops_model {
  tensor_ops_model(tensor_ops::decode::ExportedModel opened,
                   std::optional<tensor_ops::decode::ActivationType> activations,
                   std::size_t num_workers)
      : exported(std::move(opened)),
        driver(tensor_ops::decode::make_executor(exported, {activations, num_workers})) {}

  const tensor_ops::decode::ExportedModel exported;
  tensor_ops::decode::Driver driver;
  std::mutex in_use;
  // The model is driven by sequences, by arrays, or by nothing yet.
  std::unique_ptr<tensor_ops::decode::Sequences> sequences;
  bool has_arrays = false;
};

namespace tensor_ops {
namespace {

template <class T>
T& given(const char* function, const char* name, T* pointer) {
  if (pointer) return *pointer;
  throw ValueError(text(function, ": ", name, " must not be null"));
}

// A struct of the caller's, which must be as large as in version 1. `type` is its name.
template <class T>
T& given_struct(const char* function, const char* name, const char* type, T* pointer) {
  T& found = given(function, name, pointer);
  require_size(type, found.size, sizeof(T));
  return found;
}

std::size_t require_from(const char* function, const char* name, std::int64_t number,
                         std::int64_t least, std::int64_t most) {
  if (number >= least && number <= most) return static_cast<std::size_t>(number);
  throw ValueError(
      text(function, ": ", name, " must be from ", least, " to ", most, ", got ", number));
}

// A model that a function is using.
class Held {
 public:
  Held(const char* function, tensor_ops_model* pointer)
      : function_(function), model_(given(function, "model", pointer)) {
    // Before the lock, which may have been held when the process forked.
    if (const char* const lost = model_.driver.executor().lost_by_fork())
      throw Error(text(function,
                       ": the process was forked after the model was opened, and the child has "
                       "none of its ",
                       lost, "; open the model again in the child"));
    lock_ = std::unique_lock<std::mutex>(model_.in_use);
  }

  tensor_ops_model& operator*() const { return model_; }
  tensor_ops_model* operator->() const { return &model_; }

  decode::Sequences& sequences() const {
    if (model_.has_arrays) refuse("by the arrays of its steps");
    if (!model_.sequences)
      model_.sequences = std::make_unique<decode::Sequences>(model_.driver, model_.exported.logits,
                                                             model_.exported.tokens);
    return *model_.sequences;
  }
  decode::Driver& driver() const {
    if (model_.sequences) refuse("by sequences");
    model_.has_arrays = true;
    return model_.driver;
  }

 private:
  [[noreturn]] void refuse(const char* how) const {
    throw ValueError(text(function_, ": this model is driven ", how,
                          " already; open the folder once more to drive it in another way"));
  }

  const char* const function_;
  tensor_ops_model& model_;
  std::unique_lock<std::mutex> lock_;
};

std::vector<std::int64_t> sequence_list(const char* function, const std::int64_t* first,
                                        std::int32_t count) {
  const std::size_t size =
      require_from(function, "the number of sequences", count, 1, std::numeric_limits<int>::max());
  const std::int64_t* const all = &given(function, "sequences", first);
  return {all, all + size};
}

// A list of tokens, which may be empty.
std::vector<std::int32_t> token_list(const char* function, const char* name,
                                     const std::int32_t* first, std::int64_t count) {
  const std::size_t size =
      require_from(function, "the number of tokens", count, 0, std::numeric_limits<int>::max());
  if (size == 0) return {};
  const std::int32_t* const all = &given(function, name, first);
  return {all, all + size};
}

tensor_ops_status open_model(const char* folder, const tensor_ops_model_options* options,
                             tensor_ops_model** model, tensor_ops_error* error) {
  return guarded(error, [&] {
    tensor_ops_model*& made = given("open", "model", model);
    made = nullptr;
    const std::string path = &given("open", "folder", folder);
    tensor_ops_model_options wanted{sizeof wanted, nullptr, 0};
    if (options) wanted = given_struct("open", "options", "tensor_ops_model_options", options);
    const auto workers =
        require_from("open", "num_threads", wanted.num_threads, 0, decode::most_workers());
    std::optional<decode::ActivationType> activations;
    if (wanted.activations)
      decode::check_for("open", [&] { activations = decode::activation_type(wanted.activations); });
    decode::ExportedModel exported = decode::open_exported_model(path);
    if (!activations && !exported.activations.empty())
      activations = decode::activation_type(exported.activations);
    made = new tensor_ops_model(std::move(exported), activations, workers);
  });
}

void close_model(tensor_ops_model* model) { delete model; }

tensor_ops_status model_facts(const tensor_ops_model* model, tensor_ops_model_facts* facts,
                              tensor_ops_error* error) {
  return guarded(error, [&] {
    const tensor_ops_model& of = given("facts", "model", model);
    tensor_ops_model_facts& to = given_struct("facts", "facts", "tensor_ops_model_facts", facts);
    const decode::ExportedModel& from = of.exported;
    const decode::Executor& executor = of.driver.executor();
    const decode::Program& program = executor.program();
    const auto& limits = program.limits;
    const auto number = [](std::size_t size) { return static_cast<std::int32_t>(size); };
    std::size_t memory = 0;
    for (const auto& each : executor.memory()) memory += each.second;
    to = {to.size,
          from.name.c_str(),
          decode::activation_name(executor.activations()),
          from.end_tokens.data(),
          number(from.end_tokens.size()),
          from.start_token,
          number(executor.arrays().num_words()),
          number(find_output(program, from.logits)->columns),
          number(decode::longest_sequence(limits)),
          number(limits.max_requests),
          number(limits.max_tokens),
          number(limits.page_size),
          number(limits.num_pages),
          number(decode::num_layers(program)),
          number(executor.num_workers()),
          static_cast<std::int64_t>(memory)};
  });
}

tensor_ops_status open_sequence(tensor_ops_model* model, std::int64_t* sequence,
                                tensor_ops_error* error) {
  return guarded(error, [&] {
    std::int64_t& number = given("open_sequence", "sequence", sequence);
    number = Held("open_sequence", model).sequences().open();
  });
}

tensor_ops_status close_sequence(tensor_ops_model* model, std::int64_t sequence,
                                 tensor_ops_error* error) {
  return guarded(error, [&] { Held("close_sequence", model).sequences().close(sequence); });
}

tensor_ops_status set_sampling(tensor_ops_model* model, std::int64_t sequence,
                               const tensor_ops_sampling* sampling, tensor_ops_error* error) {
  return guarded(error, [&] {
    tensor_ops_sampling wanted = decode::kLikeliest;
    if (sampling)
      wanted = given_struct("set_sampling", "sampling", "tensor_ops_sampling", sampling);
    Held("set_sampling", model).sequences().set_sampling(sequence, wanted);
  });
}

tensor_ops_status append(tensor_ops_model* model, std::int64_t sequence, const std::int32_t* tokens,
                         std::int64_t count, tensor_ops_error* error) {
  return guarded(error, [&] {
    const auto all = token_list("append", "tokens", tokens, count);
    Held("append", model).sequences().append(sequence, all.data(), all.size());
  });
}

tensor_ops_status truncate(tensor_ops_model* model, std::int64_t sequence, std::int64_t length,
                           tensor_ops_error* error) {
  return guarded(error, [&] {
    const auto left =
        require_from("truncate", "length", length, 0, std::numeric_limits<int>::max());
    Held("truncate", model).sequences().truncate(sequence, left);
  });
}

tensor_ops_status run_sequences(tensor_ops_model* model, const std::int64_t* sequences,
                                std::int32_t count, tensor_ops_error* error) {
  return guarded(error, [&] {
    const auto all = sequence_list("run_sequences", sequences, count);
    Held("run_sequences", model).sequences().run(all);
  });
}

tensor_ops_status read_logits(tensor_ops_model* model, std::int64_t sequence, float* logits,
                              std::int64_t count, tensor_ops_error* error) {
  return guarded(error, [&] {
    float* const to = &given("logits", "logits", logits);
    const Held held("logits", model);
    decode::Sequences& sequences = held.sequences();
    if (count != static_cast<std::int64_t>(sequences.num_logits()))
      throw ValueError(
          text("logits: count must be logit_count, ", sequences.num_logits(), ", got ", count));
    const std::vector<float>& from = sequences.logits(sequence);
    std::copy(from.begin(), from.end(), to);
  });
}

tensor_ops_status generate(tensor_ops_model* model, const tensor_ops_generation* generation,
                           tensor_ops_error* error) {
  return guarded(error, [&] {
    const char* const here = "generate";
    const auto& wanted = given_struct(here, "generation", "tensor_ops_generation", generation);
    const auto numbers = sequence_list(here, wanted.sequences, wanted.sequence_count);
    const std::size_t most = require_from(here, "max_tokens", wanted.max_tokens, 1,
                                          std::numeric_limits<std::int32_t>::max());
    std::int32_t* const tokens = &given(here, "tokens", wanted.tokens);
    std::int32_t* const counts = &given(here, "token_counts", wanted.token_counts);
    const Held held(here, model);
    const auto ends =
        wanted.end_token_count == -1
            ? held->exported.end_tokens
            : token_list(here, "end_tokens", wanted.end_tokens, wanted.end_token_count);
    std::string problem;
    const auto all = held.sequences().generate(numbers, most, ends, problem);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::copy(all[i].begin(), all[i].end(), tokens + i * most);
      counts[i] = static_cast<std::int32_t>(all[i].size());
    }
    if (!problem.empty()) throw Error(text(here, ": ", problem));
  });
}

tensor_ops_status step_array(tensor_ops_model* model, const char* name,
                             tensor_ops_step_array* array, tensor_ops_error* error) {
  return guarded(error, [&] {
    const std::string wanted = &given("step_array", "name", name);
    tensor_ops_step_array& to = given_struct("step_array", "array", "tensor_ops_step_array", array);
    const Held held("step_array", model);
    const decode::StepArrays& arrays = held.driver().arrays();
    for (const decode::StepArray& each : arrays.all()) {
      if (each.name != wanted) continue;
      to = {to.size,
            arrays.value(wanted),
            static_cast<tensor_ops_step_type>(each.type),
            each.columns > 0 ? 2 : 1,
            {static_cast<std::int64_t>(each.rows), static_cast<std::int64_t>(each.columns)}};
      return;
    }
    throw ValueError(
        text("step_array: there is no array '", wanted, "'; there are ",
             joined(arrays.all(), [](const decode::StepArray& each) { return each.name; })));
  });
}

tensor_ops_status run_step(tensor_ops_model* model, std::int32_t num_tokens,
                           std::int32_t num_selected, tensor_ops_error* error) {
  return guarded(error, [&] {
    const Held held("run_step", model);
    const auto& limits = held->driver.program().limits;
    const auto most = static_cast<std::int64_t>(limits.max_tokens);
    const auto tokens = require_from("run_step", "num_tokens", num_tokens, 1, most);
    const auto selected = require_from("run_step", "num_selected", num_selected, 0, most);
    held.driver().run(tokens, selected);
  });
}

tensor_ops_status run_steps(tensor_ops_model* model, tensor_ops_steps* steps,
                            tensor_ops_error* error) {
  return guarded(error, [&] {
    const char* const here = "run_steps";
    tensor_ops_steps& wanted = given_struct(here, "steps", "tensor_ops_steps", steps);
    wanted.steps_done = 0;
    decode::StepsInRow row{0, 0, &given(here, "output", wanted.output), {}};
    std::int32_t* const chosen = &given(here, "chosen", wanted.chosen);
    const Held held(here, model);
    const auto& limits = held->driver.program().limits;
    row.num_tokens = require_from(here, "num_tokens", wanted.num_tokens, 1,
                                  static_cast<std::int64_t>(limits.max_tokens));
    row.num_steps = require_from(here, "num_steps", wanted.num_steps, 1,
                                 static_cast<std::int64_t>(limits.max_seq_length));
    row.max_seconds = wanted.max_seconds;
    if (!(row.max_seconds >= 0))
      throw ValueError(text(here, ": max_seconds must be 0 or larger, got ", row.max_seconds));
    row.end_tokens.resize(row.num_tokens);
    if (wanted.end_tokens) {
      const std::int32_t* const counts = &given(here, "end_token_counts", wanted.end_token_counts);
      for (std::size_t i = 0; i < row.num_tokens; ++i)
        row.end_tokens[i] = token_list(here, "end_tokens", wanted.end_tokens[i], counts[i]);
    }
    const auto all = held.driver().run_steps(row);
    std::copy(all.begin(), all.end(), chosen);
    wanted.steps_done = static_cast<std::int32_t>(all.size() / row.num_tokens);
  });
}

}  // namespace

const tensor_ops_decode decode_interface{sizeof(tensor_ops_decode),
                                         open_model,
                                         close_model,
                                         model_facts,
                                         open_sequence,
                                         close_sequence,
                                         set_sampling,
                                         append,
                                         truncate,
                                         run_sequences,
                                         read_logits,
                                         generate,
                                         step_array,
                                         run_step,
                                         run_steps};

}  // namespace tensor_ops
