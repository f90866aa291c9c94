#include "decode/executor/team.h"

#include <algorithm>
#include <system_error>

#include "declaration/errors.h"
#include "declaration/waiting.h"
#include "threads/fork.h"
#include "threads/signals.h"

namespace tensor_ops::decode {
namespace {

// How many forks lie between this process and the one that loaded the library.
std::atomic<unsigned> forks{0};
[[maybe_unused]] const bool counts_forks = call_at_fork(nullptr, nullptr, [] { ++forks; });

}  // namespace

OwnerProcess::OwnerProcess() : forks_(forks.load()) {}

bool OwnerProcess::is_current() const { return forks_ == forks.load(std::memory_order_relaxed); }

Team::Team(std::size_t threads) : size_(threads), threads_(new Thread[threads]) {
  [[maybe_unused]] const BlockedSignals blocked;
  started_.reserve(threads);
  without_processor_.reserve(threads);
  try {
    for (std::size_t i = 1; i < threads; ++i) started_.emplace_back([this, i] { serve(i); });
  } catch (const std::system_error& error) {
    const std::size_t count = started_.size() + 1;
    call(count);
    for (std::thread& thread : started_) thread.join();
    throw Error(text("compile_program: the system gives only ", count, " of ", threads,
                     " threads (", error.what(), "); pass a smaller num_workers"));
  }
}

Team::~Team() {
  if (!owner_.is_current()) {
    // A forked child has no threads to join. Their memory is leaked, since a thread of the parent
    // may have been using it at the fork.
    new std::vector<std::thread>(std::move(started_));
    threads_.release();
    return;
  }
  job_ = nullptr;
  call(size_);
  for (std::thread& thread : started_) thread.join();
}

void Team::run_job(Job job, void* context, std::size_t workers) {
  job_ = job;
  context_ = context;
  workers_ = workers;
  job_began_ = Clock::now();
  call(workers);
  take_part(0);
  meet(0);
}

void Team::take_part(std::size_t number) {
  Thread& thread = threads_[number];
  thread.slept = {};
  const auto before = thread_cpu_time();
  job_(context_, number);
  const auto used = thread_cpu_time() - before;
  thread.without_processor = Clock::now() - job_began_ - thread.slept - used;
}

const std::vector<Team::Clock::duration>& Team::without_processor() {
  without_processor_.resize(workers_);
  for (std::size_t i = 0; i < workers_; ++i) without_processor_[i] = threads_[i].without_processor;
  return without_processor_;
}

void Team::note_pause(std::size_t worker, Clock::duration time) { threads_[worker].slept += time; }

void Team::meet(std::size_t worker) {
  if (workers_ == 1) return;
  const std::uint32_t meeting = meetings_.load(std::memory_order_relaxed);
  if (!arrive()) wait(threads_[worker], [&] { return meetings_.load() != meeting; });
}

bool Team::arrive() {
  const std::size_t workers = workers_;  // of this job: once all have come, the next may begin
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < workers) return false;
  arrived_.store(0, std::memory_order_relaxed);
  meetings_.fetch_add(1);
  for (std::size_t i = 0; i < workers; ++i) wake(threads_[i]);
  return true;
}

void Team::serve(std::size_t number) {
  Thread& thread = threads_[number];
  for (std::uint32_t done = 0;; ++done) {
    wait(thread, [&] { return thread.jobs.load() != done; });
    if (!job_) return;
    take_part(number);
    arrive();
  }
}

void Team::call(std::size_t workers) {
  for (std::size_t i = 1; i < workers; ++i) threads_[i].jobs.fetch_add(1);
  for (std::size_t i = 1; i < workers; ++i) wake(threads_[i]);
}

// Called once the condition that the thread waits for is true. Whoever clears the flag is_asleep
// releases a wakeup, unless it is the thread itself.
void Team::wake(Thread& thread) {
  if (!thread.is_asleep.load()) return;
  const auto now = Clock::now();
  if (!thread.is_asleep.exchange(false)) return;
  thread.woken_at = now;
  thread.wakeups.release(1);
}

// Spins for longer than the others need if they have a processor, then sleeps.
template <class Done>
void Team::wait(Thread& thread, Done is_done) {
  constexpr int kLooks = 64;  // between two looks at the clock
  constexpr std::chrono::microseconds kSpin{50};
  const auto spin = [&] {
    for (int i = 0; i < kLooks; ++i) {
      if (is_done()) return true;
      relax();
    }
    return false;
  };
  if (spin()) return;
  for (const auto end = Clock::now() + kSpin; Clock::now() < end;)
    if (spin()) return;
  // A ring may be left from an earlier condition, so the condition is looked at again.
  while (!is_done()) {
    const auto asleep = Clock::now();
    thread.is_asleep.store(true);
    // If the condition came true before the flag was set, nobody will ring.
    if (is_done() && thread.is_asleep.exchange(false)) return;
    thread.wakeups.acquire();
    thread.slept += thread.woken_at - asleep;
  }
}

}  // namespace tensor_ops::decode
