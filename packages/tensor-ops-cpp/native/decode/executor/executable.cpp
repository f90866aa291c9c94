#include "decode/executor/executable.h"

#include <algorithm>
#include <chrono>

#include "declaration/errors.h"
#include "decode/program/node_kind.h"
#include "isa/float_mode.h"

namespace tensor_ops::decode {
namespace {

using Clock = Team::Clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// What a thread does between the parts of a step: nothing, or to note how long each took.
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

std::unique_lock<std::mutex> Executable::lock_open(const char* where) {
  // Before the lock, which may have been held when the process forked.
  if (const char* const lost = lost_by_fork())
    throw Error(text(where,
                     ": the process was forked after compile_program(), and the child has none of "
                     "its ",
                     lost, "; compile the program again in the child"));
  std::unique_lock<std::mutex> lock(running_);
  if (!team_) throw Error(text(where, ": the executable is closed; compile the program again"));
  if (!failure_.empty())
    throw Error(text(where, ": an earlier step failed: ", failure_,
                     "; compile the program again, on all ranks"));
  return lock;
}

std::unique_lock<std::mutex> Executable::begin_step(const char* where, std::size_t num_tokens,
                                                    std::size_t num_selected) {
  std::unique_lock<std::mutex> lock = lock_open(where);
  Step step = step_;
  step.num_tokens = num_tokens;
  step.num_selected = num_selected;
  check_for(where, [&] { arrays_.check(step); });
  step_ = step;
  number_step();
  return lock;
}

void Executable::number_step() {
  ++step_.number;
  workers_ = workers_in_use_.count(step_.num_tokens);
  if (exchange_) hash_of_arrays_ = hash_of_arrays(step_);
}

void Executable::run(std::size_t num_tokens, std::size_t num_selected) {
  const auto lock = begin_step("run", num_tokens, num_selected);
  take_step();
}

void Executable::take_step() {
  const auto start = Clock::now();
  run_workers([](std::size_t) { return Unwatched(); });
  const auto end = Clock::now();
  workers_in_use_.note(step_.num_tokens, start, end, team_->without_processor());
  if (!is_packed_) pack_after_step(end - start);
}

std::vector<std::int32_t> Executable::run_steps(const StepsInRow& steps) {
  const std::size_t count = steps.num_tokens;
  const std::int32_t* const chosen = chosen_tokens(program_, arrays_, steps);
  const auto lock = begin_step("run_steps", count, count);
  check_for("run_steps", [&] { arrays_.check_steps(step_, steps.num_steps); });
  std::vector<std::int32_t> all;
  for (std::size_t done = 1;; ++done) {
    take_step();
    all.insert(all.end(), chosen, chosen + count);
    if (done == steps.num_steps || ends_row(arrays_, steps, chosen)) return all;
    feed_chosen(step_, chosen, count);
    number_step();
  }
}

// Looks at each result as soon as all threads have written it, since other values reuse its memory.
std::size_t Executable::first_nan(std::size_t num_tokens, std::size_t num_selected,
                                  std::size_t slot) {
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
  const auto lock = begin_step("first_nan", num_tokens, num_selected);
  std::size_t found = nodes_.size();
  run_workers([&](std::size_t worker) { return Watch{{}, this, worker, slot, &found}; });
  return least_of_ranks(found);
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

StepProfile Executable::profile(std::size_t num_tokens, std::size_t num_selected) {
  const auto lock = begin_step("profile", num_tokens, num_selected);
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

void Executable::hold_workers(std::size_t count) {
  const auto lock = lock_open("hold_workers");
  workers_in_use_.hold(count);
}

double Executable::read_bandwidth() {
  const auto lock = lock_open("read_bandwidth");
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
  const auto lock = lock_open("packed");
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
  require_exchanged();
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

void Executable::close() {
  std::unique_lock<std::mutex> lock(running_, std::defer_lock);
  if (owner_.is_current()) lock.lock();
  if (exchange_ && owner_.is_current()) exchange_->leave("has closed its executable");
  exchange_.reset();
  team_.reset();
  nodes_.clear();
  weights_.clear();
  own_.clear();
  for (Memory* memory : {&parameters_, &caches_, &values_, &shared_}) *memory = Memory();
  tensors_.clear();
}

}  // namespace tensor_ops::decode
