// Language models that `tensor-ops export MODEL FOLDER` has written, by token ids:
//
//     tensor_ops::backend::Decoder decoder(registry.get_backend("cpp"), "exported");
//     auto sequence = decoder.open_sequence();
//     sequence.append({1, 504, 3575});
//     std::vector<std::int32_t> answer = sequence.generate(32);
//
// tensor_ops/decode.h says more of each function; their errors are the exceptions of errors.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/errors.h"
#include "tensor_ops/decode.h"

namespace tensor_ops::backend {

using Token = std::int32_t;

struct DecoderOptions {
  int num_threads = 0;      // 0: as many as the backend says
  std::string activations;  // empty: as exported
};

struct DecoderInfo {
  std::string name;         // of what it was exported from
  std::string activations;  // what activations are rounded to
  std::vector<Token> end_tokens;
  Token start_token;
  int vocabulary_size;  // tokens are from 0 to this, exclusive
  int logit_count;
  int context_length;  // the most tokens of a sequence
  int max_sequences;
  int max_step_tokens;
  int page_size, page_count;
  int layer_count;
  int num_threads;
  std::int64_t memory;  // bytes
};

// The choice of tokens; by default, the likeliest.
struct Sampling {
  double temperature = 0, top_p = 1, min_p = 0;
  int top_k = 0;  // 0: all
  std::uint64_t seed = 0;
};

// When generate() ends before it has given all tokens: after an end token of the model, or after
// one of those listed here; after none where the list is there and empty.
using EndTokens = std::optional<std::vector<Token>>;

// An array of a step, valid as long as its decoder. `as` must be the type of its elements.
struct StepArray {
  tensor_ops_step_type type;
  std::vector<std::int64_t> shape;
  void* data;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

namespace detail {

// A model that is open. It is closed when nobody has it any more.
class OpenModel {
 public:
  OpenModel(const tensor_ops_decode& table, const std::string& folder,
            const DecoderOptions& options)
      : table_(table), model_(open(table, folder, options), table.close), info_(read_info()) {}

  const DecoderInfo& info() const { return info_; }

  // Calls a function of the table with the model.
  template <class Function, class... Arguments>
  void call(Function tensor_ops_decode::* function, Arguments... arguments) const {
    tensor_ops_error error{};
    throw_unless_ok((table_.*function)(model_.get(), arguments..., &error), error);
  }

 private:
  static tensor_ops_model* open(const tensor_ops_decode& table, const std::string& folder,
                                const DecoderOptions& options) {
    const char* const activations =
        options.activations.empty() ? nullptr : options.activations.c_str();
    const tensor_ops_model_options given{sizeof given, activations, options.num_threads};
    tensor_ops_model* model = nullptr;
    tensor_ops_error error{};
    throw_unless_ok(table.open(folder.c_str(), &given, &model, &error), error);
    return model;
  }

  DecoderInfo read_info() const {
    tensor_ops_model_facts facts{};
    facts.size = sizeof facts;
    call(&tensor_ops_decode::facts, &facts);
    return {facts.name,
            facts.activations,
            {facts.end_tokens, facts.end_tokens + facts.end_token_count},
            facts.start_token,
            facts.vocabulary_size,
            facts.logit_count,
            facts.context_length,
            facts.max_sequences,
            facts.max_step_tokens,
            facts.page_size,
            facts.page_count,
            facts.layer_count,
            facts.num_threads,
            facts.memory};
  }

  const tensor_ops_decode& table_;
  const std::unique_ptr<tensor_ops_model, void (*)(tensor_ops_model*)> model_;
  const DecoderInfo info_;
};

inline std::vector<std::vector<Token>> generated(const OpenModel& model,
                                                 const std::vector<std::int64_t>& sequences,
                                                 int max_tokens, const EndTokens& end_tokens) {
  // A sequence has no room for more, and its last token need not be in the caches.
  max_tokens = static_cast<int>(
      std::min<std::int64_t>(max_tokens, std::int64_t{model.info().context_length} + 1));
  const auto most = static_cast<std::size_t>(std::max(max_tokens, 1));
  std::vector<Token> tokens(sequences.size() * most);
  std::vector<std::int32_t> counts(sequences.size());
  tensor_ops_generation generation{};
  generation.size = sizeof generation;
  generation.sequences = sequences.data();
  generation.sequence_count = static_cast<std::int32_t>(sequences.size());
  generation.max_tokens = max_tokens;
  generation.end_tokens = end_tokens ? end_tokens->data() : nullptr;
  generation.end_token_count = end_tokens ? static_cast<std::int32_t>(end_tokens->size()) : -1;
  generation.tokens = tokens.data();
  generation.token_counts = counts.data();
  model.call(&tensor_ops_decode::generate, static_cast<const tensor_ops_generation*>(&generation));
  std::vector<std::vector<Token>> all;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(i * most);
    all.emplace_back(first, first + counts[i]);
  }
  return all;
}

}  // namespace detail

// A sequence of tokens, which is closed with this object. It keeps its model open.
class Sequence {
 public:
  Sequence(Sequence&& other) noexcept = default;
  Sequence& operator=(Sequence&& other) noexcept {
    std::swap(model_, other.model_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~Sequence() {
    if (!model_) return;  // moved from
    try {
      model_->call(&tensor_ops_decode::close_sequence, number_);
    } catch (const Error&) {  // in a forked child, where nothing can be closed
    }
  }

  void append(const std::vector<Token>& tokens) {
    model_->call(&tensor_ops_decode::append, number_, tokens.data(),
                 static_cast<std::int64_t>(tokens.size()));
  }
  // Continues the sequence by up to so many tokens, and returns them.
  std::vector<Token> generate(int max_tokens, const EndTokens& end_tokens = std::nullopt) {
    return detail::generated(*model_, {number_}, max_tokens, end_tokens).front();
  }
  // The logits of the token that would follow.
  std::vector<float> logits() {
    std::vector<float> found(static_cast<std::size_t>(model_->info().logit_count));
    model_->call(&tensor_ops_decode::logits, number_, found.data(),
                 static_cast<std::int64_t>(found.size()));
    return found;
  }
  // Forgets all tokens from this index on.
  void truncate(std::int64_t length) {
    model_->call(&tensor_ops_decode::truncate, number_, length);
  }
  void set_sampling(const Sampling& sampling) {
    const tensor_ops_sampling given{sizeof given,   sampling.temperature, sampling.top_p,
                                    sampling.min_p, sampling.seed,        sampling.top_k};
    model_->call(&tensor_ops_decode::set_sampling, number_, &given);
  }

 private:
  friend class Decoder;
  explicit Sequence(std::shared_ptr<const detail::OpenModel> model) : model_(std::move(model)) {
    model_->call(&tensor_ops_decode::open_sequence, &number_);
  }

  std::shared_ptr<const detail::OpenModel> model_;
  std::int64_t number_ = 0;
};

// An exported model. Functions may be called from any thread.
class Decoder {
 public:
  // backend: a Backend of the registry, which finds it. folder: in UTF-8. Throws UnavailableError
  // where the backend is null, is not available, or runs no models, and ConfigError where the
  // configuration forces another one.
  template <class Backend>
  Decoder(const Backend* backend, const std::string& folder, const DecoderOptions& options = {})
      : Decoder(table_for(backend), folder, options) {}
  template <class Backend>
  Decoder(const Backend* backend, const char* folder, const DecoderOptions& options = {})
      : Decoder(backend, detail::not_null(folder, "the folder of a model"), options) {}
  // The same with the table of a library.
  Decoder(const tensor_ops_backend* backend, const std::string& folder,
          const DecoderOptions& options = {})
      : model_(std::make_shared<const detail::OpenModel>(table_of(backend), folder, options)) {}
  Decoder(const tensor_ops_backend* backend, const char* folder, const DecoderOptions& options = {})
      : Decoder(backend, detail::not_null(folder, "the folder of a model"), options) {}

  const DecoderInfo& info() const { return model_->info(); }

  Sequence open_sequence() { return Sequence(model_); }
  // Takes what waits in these sequences through the model, together.
  void run(const std::vector<const Sequence*>& sequences) {
    const std::vector<std::int64_t> numbers = numbers_of(sequences);
    model_->call(&tensor_ops_decode::run_sequences, numbers.data(),
                 static_cast<std::int32_t>(numbers.size()));
  }
  // Continues sequences together, which takes less time than one after another.
  std::vector<std::vector<Token>> generate(const std::vector<const Sequence*>& sequences,
                                           int max_tokens,
                                           const EndTokens& end_tokens = std::nullopt) {
    return detail::generated(*model_, numbers_of(sequences), max_tokens, end_tokens);
  }

  // Steps of arrays that the caller fills, instead of sequences.
  StepArray step_array(const std::string& name) {
    tensor_ops_step_array found{};
    found.size = sizeof found;
    model_->call(&tensor_ops_decode::step_array, name.c_str(), &found);
    return {found.type, {found.shape, found.shape + found.dims}, found.data};
  }
  StepArray step_array(const char* name) {
    return step_array(detail::not_null(name, "step_array: name"));
  }
  void run_step(int num_tokens, int num_selected) {
    model_->call(&tensor_ops_decode::run_step, num_tokens, num_selected);
  }
  // Returns the tokens of each step, one row behind the other. end_tokens: of each token of a step,
  // or none.
  std::vector<Token> run_steps(int num_tokens, int num_steps, const std::string& output,
                               const std::vector<std::vector<Token>>& end_tokens = {},
                               double max_seconds = 0) {
    if (num_tokens < 1 || num_tokens > info().max_step_tokens || num_steps < 1)
      throw ValueError("run_steps: num_tokens must be from 1 to " +
                       std::to_string(info().max_step_tokens) + " and num_steps at least 1, got " +
                       std::to_string(num_tokens) + " and " + std::to_string(num_steps));
    if (!end_tokens.empty() && static_cast<std::int64_t>(end_tokens.size()) != num_tokens)
      throw ValueError("run_steps: end_tokens must be empty or have a list for each of " +
                       std::to_string(num_tokens) + " tokens, got " +
                       std::to_string(end_tokens.size()));
    std::vector<const Token*> ends;
    std::vector<std::int32_t> counts;
    for (const std::vector<Token>& each : end_tokens) {
      ends.push_back(each.data());
      counts.push_back(static_cast<std::int32_t>(each.size()));
    }
    std::vector<Token> chosen(static_cast<std::size_t>(num_tokens) *
                              static_cast<std::size_t>(num_steps));
    tensor_ops_steps steps{};
    steps.size = sizeof steps;
    steps.output = output.c_str();
    steps.num_tokens = num_tokens;
    steps.num_steps = num_steps;
    steps.end_tokens = ends.empty() ? nullptr : ends.data();
    steps.end_token_counts = counts.data();
    steps.max_seconds = max_seconds;
    steps.chosen = chosen.data();
    model_->call(&tensor_ops_decode::run_steps, &steps);
    chosen.resize(static_cast<std::size_t>(steps.steps_done) *
                  static_cast<std::size_t>(num_tokens));
    return chosen;
  }
  std::vector<Token> run_steps(int num_tokens, int num_steps, const char* output,
                               const std::vector<std::vector<Token>>& end_tokens = {},
                               double max_seconds = 0) {
    return run_steps(num_tokens, num_steps, detail::not_null(output, "run_steps: output"),
                     end_tokens, max_seconds);
  }

 private:
  template <class Backend>
  static const tensor_ops_backend* table_for(const Backend* backend) {
    if (!backend) return nullptr;
    require_not_forced_away(*backend);  // of registry.h, where Backend is
    return backend->abi();
  }
  static const tensor_ops_decode& table_of(const tensor_ops_backend* backend) {
    if (!backend)
      throw UnavailableError(
          "a Decoder was given a backend without a library; unavailable_reason() of the registry "
          "says why there is none");
    const std::string name = backend->name;
    if (const char* const reason = backend->unavailable_reason())
      throw UnavailableError("backend '" + name + "' is unavailable: " + reason);
    if (const tensor_ops_decode* const decode = backend->decode) return *decode;
    throw UnavailableError("backend '" + name + "' runs no models (" + backend->configuration +
                           "); the backend 'cpp' does unless it was built with "
                           "TENSOR_OPS_DECODE=OFF");
  }

  std::vector<std::int64_t> numbers_of(const std::vector<const Sequence*>& sequences) const {
    std::vector<std::int64_t> numbers;
    for (const Sequence* each : sequences) {
      if (!each || each->model_ != model_)
        throw ValueError(each ? "a sequence is of another decoder, or was moved; give those that "
                                "this one has opened"
                              : "a pointer to a sequence is null; give one to an open sequence");
      numbers.push_back(each->number_);
    }
    return numbers;
  }

  std::shared_ptr<const detail::OpenModel> model_;
};

}  // namespace tensor_ops::backend
