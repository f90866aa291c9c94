#include "decode/team.h"

#include <chrono>
#include <system_error>

#include "declaration/errors.h"
#include "threads/fork.h"
#include "threads/relax.h"
#include "threads/signals.h"

namespace tensor_ops::decode {
namespace {

// How many forks lie between this process and the one that loaded the library.
std::atomic<unsigned> forks{0};
[[maybe_unused]] const bool counts_forks = call_at_fork(nullptr, nullptr, [] { ++forks; });

// Waits inside a job, where the others are on their way: spins, and once that has taken longer than
// they need if they have a CPU, lets others use this one.
template <class Done>
void wait_until(Done done) {
  constexpr int kSpins = 1000;
  for (int spins = 0; !done(); ++spins) {
    if (spins < kSpins)
      relax();
    else
      std::this_thread::yield();
  }
}

}  // namespace

OwnerProcess::OwnerProcess() : forks_(forks.load()) {}

bool OwnerProcess::is_current() const { return forks_ == forks.load(std::memory_order_relaxed); }

Team::Team(std::size_t threads) : threads_(threads), workers_(new Worker[threads]) {
  [[maybe_unused]] const BlockedSignals blocked;
  started_.reserve(threads);
  try {
    for (std::size_t i = 1; i < threads; ++i) started_.emplace_back([this, i] { serve(i); });
  } catch (const std::system_error& error) {
    const std::size_t count = started_.size() + 1;
    wake_all();
    for (std::thread& thread : started_) thread.join();
    throw Error(text("compile_program: the system gives only ", count, " of ", threads,
                     " threads (", error.what(), "); pass a smaller num_workers"));
  }
}

Team::~Team() {
  if (!owner_.is_current()) {
    // The child has no threads to join. What they waited in stays, as they may have been in it.
    new std::vector<std::thread>(std::move(started_));
    workers_.release();
    return;
  }
  work_ = nullptr;
  wake_all();
  for (std::thread& thread : started_) thread.join();
}

void Team::run(Work work, void* context) {
  work_ = work;
  context_ = context;
  wake_all();
  work(context, 0);
  meet();
}

void Team::wake_all() {
  job_.fetch_add(1);
  for (std::size_t i = 1; i <= started_.size(); ++i)
    if (workers_[i].is_asleep.exchange(false)) workers_[i].bell.ring(1);
}

void Team::meet() {
  if (threads_ == 1) return;
  const std::uint32_t meeting = meetings_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.store(meeting + 1, std::memory_order_release);
    return;
  }
  wait_until([&] { return meetings_.load(std::memory_order_acquire) != meeting; });
}

void Team::serve(std::size_t thread) {
  for (std::uint32_t job = 0;; ++job) {
    wait_for_job(workers_[thread], job);
    if (!work_) return;
    work_(context_, thread);
    meet();
  }
}

void Team::wait_for_job(Worker& worker, std::uint32_t last) {
  const auto has_begun = [&] { return job_.load() != last; };
  const auto start = std::chrono::steady_clock::now();
  constexpr std::chrono::microseconds kSpin{50};
  while (std::chrono::steady_clock::now() - start < kSpin)
    for (int i = 0; i < 64; ++i) {
      if (has_begun()) return;
      relax();
    }
  worker.is_asleep.store(true);
  // A job that began before that rang for nobody. Who takes the flag back decides whether one
  // rings.
  if (has_begun() && worker.is_asleep.exchange(false)) return;
  worker.bell.wait();
}

}  // namespace tensor_ops::decode
