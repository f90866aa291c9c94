// The caller claims pieces like any other thread and never waits for one that nobody has claimed: a
// thread that is slow to wake up, or that has to share its processor, costs nothing but its help.
#include "launch/pool.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

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

// Calls done() again and again for about the time that a sleeping thread takes to wake up.
template <class Done>
bool spin_until(Done done) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kSpin{50};
  const auto start = Clock::now();
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      relax();
    }
  } while (Clock::now() - start < kSpin);
  return false;
}

// What is left of a job in one word, so that one compare-and-swap claims a piece of this job and no
// other: a number that tells it from the jobs before it, the threads that may still join, the
// pieces left.
class Ticket {
 public:
  Ticket() = default;
  Ticket(std::uint32_t job, int seats, int pieces)
      : word_{std::uint64_t{job} << 32 | static_cast<std::uint64_t>(seats) << 16 |
              static_cast<std::uint64_t>(pieces)} {}

  std::uint32_t job() const { return static_cast<std::uint32_t>(word_ >> 32); }
  int seats() const { return static_cast<int>(word_ >> 16 & 0xFFFF); }
  int pieces() const { return static_cast<int>(word_ & 0xFFFF); }
  bool can_be_joined() const { return seats() > 0 && pieces() > 0; }
  Ticket without_piece() const { return Ticket(job(), seats(), pieces() - 1); }
  Ticket without_seat_and_piece() const { return Ticket(job(), seats() - 1, pieces() - 1); }

 private:
  std::uint64_t word_ = 0;
};

// What a thread that is started meanwhile inherits: no signal for the process goes to it, which
// handlers, sigwait() and a Python that wants to be interrupted expect on threads of their own. A
// fault of the thread itself still does, so that its handler can report it.
class BlockedSignals {
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
    pieces_ = pieces;
    unfinished_.store(pieces, std::memory_order_relaxed);
    ticket_.store(Ticket(++jobs_, helpers, pieces));
    if (sleeping_.load() > 0) wake();
    finish(jobs_);
    while (!spin_until([this] { return unfinished_.load(std::memory_order_acquire) == 0; }))
      std::this_thread::yield();
    return true;
  }

 private:
  void start_threads(int wanted) {
    if (threads_ >= wanted) return;
    const BlockedSignals blocked;
    try {
      for (; threads_ < wanted; ++threads_) std::thread([this] { help(); }).detach();
    } catch (const std::exception&) {
      // No more threads, or no memory for one: those that are there do the work.
    }
  }

  void wake() {
    {
      const std::lock_guard<std::mutex> lock(sleep_);
    }
    awake_.notify_all();
  }

  // Does pieces of a job until none is left.
  void finish(std::uint32_t job) {
    for (Ticket seen = ticket_.load(); seen.job() == job && seen.pieces() > 0;)
      if (ticket_.compare_exchange_weak(seen, seen.without_piece())) {
        do_piece(seen);
        seen = ticket_.load();
      }
  }

  // The job that the piece is of cannot end, nor its fields change, before the piece is counted as
  // done.
  void do_piece(Ticket claimed) {
    work_(context_, pieces_ - claimed.pieces());
    unfinished_.fetch_sub(1, std::memory_order_release);
  }

  [[noreturn]] void help() {
    for (;;) {
      Ticket seen = ticket_.load();
      if (seen.can_be_joined()) {
        if (ticket_.compare_exchange_weak(seen, seen.without_seat_and_piece())) {
          do_piece(seen);
          finish(seen.job());
        }
        continue;
      }
      const auto there_is_work = [this] { return ticket_.load().can_be_joined(); };
      if (spin_until(there_is_work)) continue;
      std::unique_lock<std::mutex> lock(sleep_);
      ++sleeping_;
      awake_.wait(lock, there_is_work);
      --sleeping_;
    }
  }

  std::mutex running_;
  int threads_ = 0;         // guarded by running_
  std::uint32_t jobs_ = 0;  // likewise
  Work work_ = nullptr;
  const void* context_ = nullptr;
  int pieces_ = 0;

  alignas(64) std::atomic<Ticket> ticket_{Ticket()};
  alignas(64) std::atomic<int> unfinished_{0};
  alignas(64) std::atomic<int> sleeping_{0};
  std::mutex sleep_;
  std::condition_variable awake_;
};

std::atomic<Pool*> the_pool{nullptr};

// A forked child has the pool's memory but none of its threads, and makes a new one when it wants
// one.
const bool fork_is_safe = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); }) == 0;

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

void run_pieces(int pieces, int threads, Work work, const void* context) {
  const int helpers = (threads < pieces ? threads : pieces) - 1;
  Pool* const shared = helpers > 0 ? pool() : nullptr;
  if (shared && shared->run(pieces, helpers, work, context)) return;
  for (int piece = 0; piece < pieces; ++piece) work(context, piece);
}

}  // namespace tensor_ops
