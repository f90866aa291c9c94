// The caller claims pieces like any other thread and never waits for one that nobody has claimed: a
// thread that is slow to wake up, or that has to share its processor, costs nothing but its help.
#include "threads/pool.h"

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "threads/doorbell.h"
#include "threads/fork.h"
#include "threads/placement.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace tensor_ops {
namespace {

void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

using Clock = std::chrono::steady_clock;

// Calls done() again and again for about the time that a sleeping thread takes to wake up. Once the
// time is over that passes between calls that follow on one another, it goes on only while
// may_go_on() says so.
template <class Done, class MayGoOn>
bool spin_until(Done done, MayGoOn may_go_on) {
  constexpr std::chrono::microseconds kSpin{50}, kBrief{5};
  const auto start = Clock::now();
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      relax();
    }
    const auto passed = Clock::now() - start;
    if (passed > kSpin || (passed > kBrief && !may_go_on())) return false;
  }
}

// A spinning thread gives its CPU to any other that wants it: those of torch's OpenMP runtime, say,
// wait for one another, and one that is held up holds up all. They also keep a CPU for milliseconds
// only to wait for work. Beside such a thread ours had better sleep: the system gives a CPU to a
// thread that wakes up rather than to one that gave it away.
class Manners {
 public:
  // Whether the calling thread has its CPU for itself and may go on spinning.
  bool give_way() {
    constexpr std::chrono::microseconds kUsual{20};
    if (times_to_sleep_ > 0) {
      --times_to_sleep_;
      return false;
    }
    const auto start = Clock::now();
    std::this_thread::yield();
    const bool was_alone = Clock::now() - start < kUsual;
    patience_ = was_alone ? kFew : std::min(2 * patience_, kMany);
    if (!was_alone) times_to_sleep_ = patience_;
    return was_alone;
  }

 private:
  static constexpr int kFew = 64, kMany = 4096;

  int times_to_sleep_ = 0;
  int patience_ = kFew;  // how often it sleeps before it tries again
};

// Two counts in one word with the number of the job that they are of, so that one compare-and-swap
// changes those of this job and no other.
class OfJob {
 public:
  OfJob() = default;
  OfJob(std::uint32_t job, int first, int second)
      : word_{std::uint64_t{job} << 32 | static_cast<std::uint64_t>(first) << 16 |
              static_cast<std::uint64_t>(second)} {}

  std::uint32_t job() const { return static_cast<std::uint32_t>(word_ >> 32); }
  int first() const { return static_cast<int>(word_ >> 16 & 0xFFFF); }
  int second() const { return static_cast<int>(word_ & 0xFFFF); }

 private:
  std::uint64_t word_ = 0;
};

// How many threads may still join a job, and into how many ranges its pieces are divided.
struct Ticket : OfJob {
  using OfJob::OfJob;
  int seats() const { return first(); }
  int ranges() const { return second(); }
  Ticket without_seat() const { return Ticket(job(), seats() - 1, ranges()); }
};

// The pieces that nobody has claimed yet of those that lie next to one another. A thread begins
// with the range that was its own in the jobs before, and takes it from the front: what it wrote or
// read there is in its own caches, and may be far from any other thread's. Then it helps with the
// other ranges, from the back.
struct Range : OfJob {
  using OfJob::OfJob;
  int begin() const { return first(); }
  int end() const { return second(); }
  Range without_front() const { return Range(job(), begin() + 1, end()); }
  Range without_back() const { return Range(job(), begin(), end() - 1); }
};

// What a thread that is started meanwhile inherits: no signal for the process goes to it, which
// handlers, sigwait() and a Python that wants to be interrupted expect on threads of their own. A
// fault of the thread itself still does, so that its handler can report it.
class BlockedSignals {
#if !defined(_WIN32)
 public:
  BlockedSignals() {
    sigset_t set;
    sigfillset(&set);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
      sigdelset(&set, fault);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
#endif
};

class Pool {
 public:
  // Returns false if another thread's job is under way.
  bool run(int pieces, int helpers, Work work, const void* context) {
    const std::unique_lock<std::mutex> own(running_, std::try_to_lock);
    if (!own) return false;
    start_threads(helpers);
    work_ = work;
    context_ = context;
    unfinished_.store(pieces, std::memory_order_relaxed);
    placement_.begin(++jobs_);
    const int ranges = std::min(helpers + 1, kMostRanges);
    for (int r = 0; r < ranges; ++r)
      range_[r].left.store(Range(jobs_, pieces * r / ranges, pieces * (r + 1) / ranges),
                           std::memory_order_relaxed);
    ticket_.store(Ticket(jobs_, helpers, ranges));
    wake(helpers);
    finish(jobs_, 0, ranges);
    ticket_.store(Ticket(jobs_, 0, ranges));
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
      // No more threads, or no memory for one: those that are there do the work.
    }
  }

  // Wakes as many as are wanted beside those that are awake and will see the job.
  void wake(int wanted) {
    int asleep = sleeping_.load();
    const int missing = wanted - (threads_.load(std::memory_order_relaxed) - asleep);
    while (missing > 0 && asleep > 0) {
      const int woken = missing < asleep ? missing : asleep;
      if (sleeping_.compare_exchange_weak(asleep, asleep - woken)) return bell_.ring(woken);
    }
  }

  // Does pieces of a job until none is left that nobody has claimed.
  void finish(std::uint32_t job, int own, int ranges) {
    do_pieces(
        job, range_[own].left, [](Range left) { return left.begin(); },
        [](Range left) { return left.without_front(); });
    for (int next = 1; next < ranges; ++next)
      do_pieces(
          job, range_[(own + next) % ranges].left, [](Range left) { return left.end() - 1; },
          [](Range left) { return left.without_back(); });
  }

  // The job that a claimed piece is of cannot end, nor its fields change, before the piece is
  // counted as done.
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

  // Waits for work by spinning, then asleep. A spinning thread gives its CPU to any other that
  // wants it: those of torch's OpenMP runtime wait for one another, and one that is held up holds
  // up all.
  [[noreturn]] void help(int number) {
    Placement::ask_for_short_turns();
    Manners manners;
    const auto there_is_work = [this] { return ticket_.load().seats() > 0; };
    for (;;) {
      Ticket seen = ticket_.load();
      if (seen.seats() > 0) {
        if (!ticket_.compare_exchange_weak(seen, seen.without_seat())) continue;
        placement_.settle(seen.job());
        // The first range is the caller's.
        finish(seen.job(), 1 + number % (seen.ranges() - 1), seen.ranges());
      } else if (placement_.is_beside_caller() ||
                 !spin_until(there_is_work, [&manners] { return manners.give_way(); })) {
        sleep();
      }
    }
  }

  // Whoever counts a sleeping thread out rings for one.
  void sleep() {
    sleeping_.fetch_add(1);
    // A job that came before that did not count this thread.
    if (ticket_.load().seats() > 0 && counted_out()) return;
    bell_.wait();
  }

  bool counted_out() {
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
  Placement placement_;
  Doorbell bell_;

  static constexpr int kMostRanges = 64;
  struct alignas(64) RangeOnItsLine {
    std::atomic<Range> left{Range()};
  };
  RangeOnItsLine range_[kMostRanges];
  alignas(64) std::atomic<Ticket> ticket_{Ticket()};
  alignas(64) std::atomic<int> unfinished_{0};
  alignas(64) std::atomic<int> sleeping_{0};
};

std::atomic<Pool*> the_pool{nullptr};

// A forked child has the pool's memory but none of its threads, and makes a new one when it wants
// one.
const bool fork_is_safe = call_at_fork(nullptr, nullptr, [] { the_pool.store(nullptr); });

// Never deleted: its threads may be waiting in it when the process ends. Null where it cannot be
// made.
Pool* pool() {
  Pool* made = the_pool.load();
  if (made || !fork_is_safe) return made;
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
  Pool* const shared = helpers > 0 ? pool() : nullptr;
  if (shared && shared->run(pieces, helpers, work, context)) return;
  for (int piece = 0; piece < pieces; ++piece) work(context, piece);
}

}  // namespace tensor_ops
