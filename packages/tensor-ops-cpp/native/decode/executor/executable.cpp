#include "decode/executor/executable.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "declaration/errors.h"
#include "decode/interface/decode_interface.h"
#include "decode/program/node_kind.h"
#include "isa/float_mode.h"
#include "threads/threads.h"

namespace tensor_ops::decode {
namespace {

using Clock = Team::Clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Hook between the parts of a step that does nothing; another one notes how long each took.
struct Unwatched {
  void has_worked(std::size_t) {}
  void has_waited(std::size_t) {}
  void has_ended(std::size_t) {}
};

class Stopwatch {
 public:
  Stopwatch(Clock::time_point start, double* work, double* wait)
      : last_(start), work_(work), wait_(wait) {}
  void has_worked(std::size_t node) { add_to(work_[node]); }
  void has_waited(std::size_t node) { add_to(wait_[node]); }
  void has_ended(std::size_t node) { has_worked(node); }

 private:
  void add_to(double& sum) {
    const auto now = Clock::now();
    sum += seconds(now - last_);
    last_ = now;
  }

  Clock::time_point last_;
  double *work_, *wait_;
};

}  // namespace

Executable::~Executable() = default;

const char* Executable::lost_by_fork() const { return owner_.is_current() ? nullptr : "threads"; }

bool Executable::reads_from_caller(std::size_t tensor) const {
  for (const Node& node : program_.nodes)
    for (std::size_t s = 0; s < node.weights.size(); ++s)
      if (node.kind->weights[s].form == WeightForm::kLookup && node.weights[s][0] == tensor)
        return true;
  return false;
}

void Executable::begin_step(const Step& step) {
  step_ = step;
  workers_ = workers_in_use_.count(step.num_tokens);
}

void Executable::take_step(const Step& step) {
  begin_step(step);
  const auto start = Clock::now();
  run_workers([](std::size_t) { return Unwatched(); });
  const auto end = Clock::now();
  // How long steps take decides on the workers of the next ones; those of a draft are others.
  if (!step.is_draft) workers_in_use_.note(step.num_tokens, start, end, team_->without_processor());
  if (!is_packed_) pack_after_step(end - start);
}

// Looks at each result as soon as all threads have written it, since other values reuse its memory.
std::size_t Executable::first_nan(const Step& step, std::size_t slot) {
  struct Watch : Unwatched {
    Executable* executable;
    std::size_t worker, slot;
    std::size_t* found;

    void has_ended(std::size_t node) {
      executable->team_->meet(worker);
      if (worker == 0 && node < *found && executable->has_nan(node, slot)) *found = node;
      executable->team_->meet(worker);
    }
  };
  std::size_t found = nodes_.size();
  // What a state was before the step is gone.
  for (const Cache& cache : program_.caches)
    if (cache.form == CacheForm::kState) return found;
  begin_step(step);
  run_workers([&](std::size_t worker) { return Watch{{}, this, worker, slot, &found}; });
  return found;
}

bool Executable::has_nan(std::size_t node, std::size_t slot) const {
  if (program_.values[program_.nodes[node].outputs[0]].is_int32) return false;
  const Share& share = nodes_[node].shares[0];
  for (std::size_t r = 0; r < share.rows; ++r) {
    const std::size_t token = share.is_selected ? static_cast<std::size_t>(step_.selected[r]) : r;
    if (static_cast<std::size_t>(step_.slots[token]) != slot) continue;
    const float* const row = share.out() + r * share.columns;
    if (std::any_of(row, row + share.columns, [](float x) { return x != x; })) return true;
  }
  return false;
}

template <class Visit>
void Executable::for_parts(CacheGroup group, std::size_t number, Visit visit) const {
  const bool is_state = group == kOfStates;
  const std::size_t end = is_state ? program_.limits.num_states() : program_.limits.num_pages;
  if (number >= end)
    throw ValueError(text(is_state ? "a state" : "a page", " must be from 0 to ", end - 1, ", got ",
                          static_cast<std::int64_t>(number)));
  for (std::size_t c = 0; c < cache_memory_.size(); ++c) {
    const Cache& cache = program_.caches[c];
    if (group_of(cache) != group) continue;
    const std::size_t heads = is_state ? 1 : cache.num_kv_heads;
    for (std::size_t head = 0; head < heads; ++head)
      cache_memory_[c].for_parts_of_page(number, head, visit);
  }
}

void Executable::copy(CacheGroup group, std::size_t number, unsigned char* to) const {
  for_parts(group, number, [&](const unsigned char* from, std::size_t bytes) {
    to = std::copy_n(from, bytes, to);
  });
}

void Executable::fill(CacheGroup group, std::size_t number, const unsigned char* from) {
  for_parts(group, number, [&](unsigned char* to, std::size_t bytes) {
    std::copy_n(from, bytes, to);
    from += bytes;
  });
}

StepProfile Executable::profile(const Step& step) {
  begin_step(step);
  StepProfile profile{0, workers_, {}, {}};
  profile.work.resize(workers_ * nodes_.size());
  profile.wait.resize(profile.work.size());
  const auto start = Clock::now();
  run_workers([&](std::size_t worker) {
    const std::size_t row = worker * nodes_.size();
    return Stopwatch(start, profile.work.data() + row, profile.wait.data() + row);
  });
  profile.whole = seconds(Clock::now() - start);
  return profile;
}

double Executable::read_bandwidth() {
  if (packed_size_ == 0) throw Error("read_bandwidth: the program has no matrices to read");
  pack_rest(true, {});
  workers_ = workers_in_use_.count(1);
  const auto start = Clock::now();
  team_->run(workers_, [this](std::size_t worker) {
    const auto [begin, end] = shares_of(worker);
    for (std::size_t t = begin; t < end; ++t) weights_.read(t);
  });
  return static_cast<double>(packed_size_) / seconds(Clock::now() - start);
}

std::vector<PackedPiece> Executable::packed() {
  pack_rest(true, {});
  return weights_.pieces();
}

// Where there are fewer workers than shares, some workers compute several shares, one after
// another. No result depends on who computes it.
std::pair<std::size_t, std::size_t> Executable::shares_of(std::size_t worker) const {
  return {threads_ * worker / workers_, threads_ * (worker + 1) / workers_};
}

template <class WatchOf>
void Executable::run_workers(WatchOf watch_of) {
  team_->run(workers_, [&](std::size_t worker) { work(worker, watch_of(worker)); });
  if (exchange_error_) std::rethrow_exception(std::exchange(exchange_error_, nullptr));
}

// Every worker goes through all phases and meets the others where the plan says so, even at those
// that have no rows in this step. If the other ranks do not come, all of them stop there.
template <class Watch>
void Executable::work(std::size_t worker, Watch watch) {
  const DefaultFloatMode mode;
  const auto [begin, end] = shares_of(worker);
  std::uint32_t num_exchanged = exchange_ ? exchange_->num_done() : 0;
  for (const Phase& phase : phases_) {
    const std::size_t n = phase.main;
    if ((n >= program_.num_step_nodes) != step_.is_draft) continue;
    Compiled& node = nodes_[n];
    if (node.meets_before) team_->meet(worker);
    watch.has_waited(n);
    const std::size_t rows = node.rows == Rows::kTokens ? step_.num_tokens : step_.num_selected;
    if (rows == 0) continue;
    const bool meets = node.kernels.second && (node.kernels.meets_if_few || rows > kFewRows);
    // Products of one share go on until no share has a tile left: the worker's others have nothing
    // to multiply, and no rows to prepare for that.
    const std::size_t end_of_products = node.claims ? begin + 1 : end;
    node.shares[begin].num_own = end - begin;
    if (node.sent_columns > 0) {
      const auto buffers = exchange_->buffers(num_exchanged++, rows * node.sent_columns);
      for (std::size_t t = begin; t < end; ++t) node.shares[t].exchanged = buffers;
    }
    for (std::size_t t = begin; t < (meets ? end : end_of_products); ++t) {
      node.shares[t].rows = rows;
      node.kernels.first(node.shares[t]);
    }
    if (meets) {
      watch.has_worked(n);
      team_->meet(worker);
      if (node.sent_columns > 0 && !exchange(worker, n, rows)) return;
      watch.has_waited(n);
    }
    if (node.kernels.second)
      for (std::size_t t = begin; t < end_of_products; ++t) node.kernels.second(node.shares[t]);
    watch.has_ended(n);
  }
}

// All workers have met, so that what they send is written. They meet again once the others have
// sent theirs.
bool Executable::exchange(std::size_t worker, std::size_t node, std::size_t rows) {
  if (worker == 0) {
    try {
      exchange_->meet(node, rows, nodes_[node].sent_columns);
    } catch (...) {
      exchange_error_ = std::current_exception();
    }
    team_->note_pause(worker, exchange_->paused());
  }
  team_->meet(worker);
  return !exchange_error_;
}

void Executable::release() {
  exchange_.reset();
  team_.reset();
  nodes_.clear();
  weights_.clear();
  own_.clear();
  for (Memory* memory : {&parameters_, &caches_, &values_, &shared_}) *memory = Memory();
  tensors_.clear();
}

int most_workers() { return sensible_threads(std::numeric_limits<int>::max()); }

std::unique_ptr<Executor> make_executor(const ExportedModel& model,
                                        const ExecutorOptions& options) {
  const std::size_t threads =
      options.num_workers ? options.num_workers : static_cast<std::size_t>(num_threads());
  const auto activations = options.activations.value_or(ActivationType::kInt8x2);
  return std::make_unique<Executable>(model.program, model.tensors,
                                      CompileOptions{threads, activations, {}, {}, true});
}

}  // namespace tensor_ops::decode
