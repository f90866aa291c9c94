// The caller claims pieces like any other thread and never waits for a piece that nobody has
// claimed. A thread that wakes up late, or that has to share its CPU, costs the call only the help
// it did not give.
#include "threads/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "declaration/waiting.h"
#include "threads/fork.h"
#include "threads/pytorch_threads.h"
#include "threads/semaphore.h"
#include "threads/signals.h"

namespace tensor_ops {
namespace {

using Clock = std::chrono::steady_clock;

// Calls done() until it holds, for about as long as waking a sleeping thread takes. After the first
// microseconds, which cover the gap between two calls in a row, goes on only while keep_spinning()
// holds. Returns whether done() held.
template <class Done, class KeepSpinning>
bool spin_until(Done done, KeepSpinning keep_spinning) {
  constexpr std::chrono::microseconds kSpin{50}, kGapBetweenCalls{5};
  const auto start = Clock::now();
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      relax();
    }
    const auto passed = Clock::now() - start;
    if (passed > kSpin || (passed > kGapBetweenCalls && !keep_spinning())) return false;
  }
}

// Decides whether an idle thread goes on spinning. It yields its CPU first: the threads of torch's
// OpenMP runtime wait for one another, so that a spinning thread that holds up one of them holds up
// all. They also spin for milliseconds themselves. Where one of them had the CPU meanwhile, the
// next idle times are spent asleep, twice as many each time, because the system runs a thread that
// wakes up sooner than one that has yielded.
class SpinBackoff {
 public:
  bool yield_and_keep_spinning() {
    constexpr std::chrono::microseconds kLongestYieldAlone{20};
    if (sleeps_left_ > 0) {
      --sleeps_left_;
      return false;
    }
    const auto start = Clock::now();
    std::this_thread::yield();
    const bool was_alone = Clock::now() - start < kLongestYieldAlone;
    sleeps_ = was_alone ? kFewestSleeps : std::min(2 * sleeps_, kMostSleeps);
    if (!was_alone) sleeps_left_ = sleeps_;
    return was_alone;
  }

 private:
  static constexpr int kFewestSleeps = 64, kMostSleeps = 4096;

  int sleeps_left_ = 0;
  int sleeps_ = kFewestSleeps;
};

// Two counts in one word with the number of their job, so that a compare-and-swap by a thread that
// comes late cannot change those of another job.
class JobCounts {
 public:
  JobCounts() = default;
  JobCounts(std::uint32_t job, int first, int second)
      : word_{std::uint64_t{job} << 32 | static_cast<std::uint64_t>(first) << 16 |
              static_cast<std::uint64_t>(second)} {}

  std::uint32_t job() const { return static_cast<std::uint32_t>(word_ >> 32); }
  int first() const { return static_cast<int>(word_ >> 16 & 0xFFFF); }
  int second() const { return static_cast<int>(word_ & 0xFFFF); }

 private:
  std::uint64_t word_ = 0;
};
static_assert(kMostPieces <= 0xFFFF, "pieces fit in half a word");

// The number of threads that may still join a job, and of ranges that its pieces are divided into.
struct Seats : JobCounts {
  using JobCounts::JobCounts;
  int free() const { return first(); }
  int ranges() const { return second(); }
  Seats without_one() const { return Seats(job(), free() - 1, ranges()); }
};

// The neighbouring pieces, out of one share of a job, that nobody has claimed. Each thread claims
// from the front of its own range, which takes no other thread's cache line, and then helps with
// the other ranges from their backs.
struct Range : JobCounts {
  using JobCounts::JobCounts;
  int begin() const { return first(); }
  int end() const { return second(); }
  Range without_front() const { return Range(job(), begin() + 1, end()); }
  Range without_back() const { return Range(job(), begin(), end() - 1); }
};

class Pool {
 public:
  // Returns false if another thread's job is under way.
  bool run(int pieces, int helpers, Work work, const void* context) {
    const std::unique_lock<std::mutex> own(running_, std::try_to_lock);
    if (!own) return false;
    const bool uses_pytorch = pytorch_threads_spin() && helpers < pytorch_num_threads();
    if (!uses_pytorch) start_threads(helpers);
    work_ = work;
    context_ = context;
    unfinished_.store(pieces, std::memory_order_relaxed);
    ++jobs_;
    const int ranges = std::min(helpers + 1, kMostRanges);
    for (int r = 0; r < ranges; ++r)
      range_[r].left.store(Range(jobs_, pieces * r / ranges, pieces * (r + 1) / ranges),
                           std::memory_order_relaxed);
    if (uses_pytorch) {
      const Job job{*this, jobs_, ranges};
      run_on_pytorch_threads(help_with_job, &job);
      return true;
    }
    seats_.store(Seats(jobs_, helpers, ranges));
    wake(helpers);
    do_job(jobs_, 0, ranges);
    seats_.store(Seats(jobs_, 0, ranges));
    const auto is_done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
    while (!spin_until(is_done, [] { return true; })) std::this_thread::yield();
    return true;
  }

  int awake() const {
    return threads_.load(std::memory_order_relaxed) - sleeping_.load(std::memory_order_relaxed);
  }

 private:
  void start_threads(int wanted) {
    if (threads_.load(std::memory_order_relaxed) >= wanted) return;
    [[maybe_unused]] const BlockedSignals blocked;
    try {
      for (; threads_.load(std::memory_order_relaxed) < wanted; threads_.fetch_add(1))
        std::thread([this, number = threads_.load(std::memory_order_relaxed)] {
          help(number);
        }).detach();
    } catch (const std::exception&) {
      // The system has no threads or no memory left: the threads that exist do the work.
    }
  }

  // Wakes sleeping threads until the wanted number is awake. Awake threads see the job by
  // themselves.
  void wake(int wanted) {
    int asleep = sleeping_.load();
    const int missing = wanted - (threads_.load(std::memory_order_relaxed) - asleep);
    while (missing > 0 && asleep > 0) {
      const int woken = missing < asleep ? missing : asleep;
      if (sleeping_.compare_exchange_weak(asleep, asleep - woken)) return wakeups_.release(woken);
    }
  }

  // Does pieces of a job until all are claimed.
  void do_job(std::uint32_t job, int own, int ranges) {
    do_pieces(
        job, range_[own].left, [](Range left) { return left.begin(); },
        [](Range left) { return left.without_front(); });
    for (int next = 1; next < ranges; ++next)
      do_pieces(
          job, range_[(own + next) % ranges].left, [](Range left) { return left.end() - 1; },
          [](Range left) { return left.without_back(); });
  }

  // The job cannot end, nor its fields change, before a claimed piece is counted as done.
  template <class Choose, class Without>
  void do_pieces(std::uint32_t job, std::atomic<Range>& range, Choose choose, Without without) {
    int done = 0;
    for (Range left = range.load(); left.job() == job && left.begin() < left.end();) {
      if (!range.compare_exchange_weak(left, without(left))) continue;
      work_(context_, choose(left));
      ++done;
      left = range.load();
    }
    if (done) unfinished_.fetch_sub(done, std::memory_order_release);
  }

  struct Job {
    Pool& pool;
    std::uint32_t number;
    int ranges;
  };

  static void help_with_job(const void* context, int thread) {
    const Job& job = *static_cast<const Job*>(context);
    if (thread < job.ranges) job.pool.do_job(job.number, thread, job.ranges);
  }

  // Waits for work by spinning, then asleep.
  [[noreturn]] void help(int number) {
    SpinBackoff backoff;
    const auto there_is_work = [this] { return seats_.load().free() > 0; };
    for (;;) {
      Seats seen = seats_.load();
      if (seen.free() > 0) {
        if (!seats_.compare_exchange_weak(seen, seen.without_one())) continue;
        // The first range is the caller's.
        do_job(seen.job(), 1 + number % (seen.ranges() - 1), seen.ranges());
      } else if (!spin_until(there_is_work,
                             [&backoff] { return backoff.yield_and_keep_spinning(); })) {
        sleep();
      }
    }
  }

  // A thread that lowers sleeping_ releases as many wakeups as it has taken threads off.
  void sleep() {
    sleeping_.fetch_add(1);
    // A job that began before that did not know of this thread.
    if (seats_.load().free() > 0 && leave_sleepers()) return;
    wakeups_.acquire();
  }

  bool leave_sleepers() {
    int asleep = sleeping_.load();
    while (asleep > 0)
      if (sleeping_.compare_exchange_weak(asleep, asleep - 1)) return true;
    return false;
  }

  std::mutex running_;
  std::uint32_t jobs_ = 0;  // guarded by running_
  Work work_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<int> threads_{0};  // written under running_
  Semaphore wakeups_;

  static constexpr int kMostRanges = 64;
  struct alignas(64) RangeOnItsLine {
    std::atomic<Range> left{Range()};
  };
  RangeOnItsLine range_[kMostRanges];
  alignas(64) std::atomic<Seats> seats_{Seats()};
  alignas(64) std::atomic<int> unfinished_{0};
  alignas(64) std::atomic<int> sleeping_{0};
};

std::atomic<Pool*> the_pool{nullptr};

// A forked child has the pool's memory but none of its threads, and makes a new one when it wants
// one.
const bool pool_survives_fork = call_at_fork(nullptr, nullptr, [] { the_pool.store(nullptr); });

// Never deleted: its threads may be waiting in it when the process ends. Null where it cannot be
// made.
Pool* shared_pool() {
  Pool* made = the_pool.load();
  if (made || !pool_survives_fork) return made;
  std::unique_ptr<Pool> fresh(new (std::nothrow) Pool);
  if (fresh && the_pool.compare_exchange_strong(made, fresh.get())) made = fresh.release();
  return made;
}

}  // namespace

int helpers_awake() {
  const Pool* const made = the_pool.load();
  return made ? made->awake() : 0;
}

void run_pieces(int pieces, int threads, Work work, const void* context) {
  const int helpers = (threads < pieces ? threads : pieces) - 1;
  Pool* const shared = helpers > 0 ? shared_pool() : nullptr;
  if (shared && shared->run(pieces, helpers, work, context)) return;
  for (int piece = 0; piece < pieces; ++piece) work(context, piece);
}

}  // namespace tensor_ops
