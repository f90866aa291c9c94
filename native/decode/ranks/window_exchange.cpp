#include "decode/ranks/window_exchange.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "declaration/errors.h"
#include "declaration/waiting.h"
#include "decode/program/pieces.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that is late by less than kSpin finds the others spinning. Then they let other threads
// have the processor, and at last sleep: after kYield, or as soon as others have had it for kTaken.
// Where there are more threads than processors, one that is woken gets a processor much sooner than
// one that has given it away. The calls are kBetweenCalls apart.
constexpr std::chrono::microseconds kSpin{10}, kYield{1000}, kTaken{20};
constexpr std::chrono::milliseconds kBetweenCalls{50};

#if defined(__linux__)

// Sleeps until somebody wakes those that sleep at this word, but not if it is not `seen` any more.
// The word is found by where it is in the memory that processes share.
void sleep_at(std::atomic<std::uint32_t>& word, std::uint32_t seen, Clock::duration most) {
  static_assert(sizeof word == 4, "a futex is 32 bits");
  const auto nanoseconds = std::chrono::nanoseconds(most).count();
  const timespec time{static_cast<time_t>(nanoseconds / 1'000'000'000),
                      static_cast<long>(nanoseconds % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake_at(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

#else

// Nothing here lets a process sleep until another one wakes it: it looks again after a short sleep.
void sleep_at(std::atomic<std::uint32_t>&, std::uint32_t, Clock::duration most) {
  std::this_thread::sleep_for(std::min<Clock::duration>(most, std::chrono::microseconds(100)));
}

void wake_at(std::atomic<std::uint32_t>&) {}

#endif

constexpr std::size_t kLine = 64;

std::size_t buffer_bytes(std::size_t most) {
  return aligned(size_product("what ranks exchange", most, sizeof(float)));
}

}  // namespace

std::size_t WindowExchange::bytes(std::size_t world_size, std::size_t most) {
  return size_product("what ranks exchange", world_size,
                      sizeof(RankHeader) + 2 * buffer_bytes(most));
}

WindowExchange::WindowExchange(std::size_t rank, std::size_t world_size, std::size_t most,
                               std::shared_ptr<unsigned char> window, RankCalls& calls)
    : Exchange(rank, world_size),
      stride_(2 * buffer_bytes(most)),
      window_(std::move(window)),
      calls_(calls),
      process_(getpid()),
      first_(header(rank).arrived.load(std::memory_order_relaxed)) {
  header(rank).buffer_lines = static_cast<std::uint32_t>(stride_ / 2 / kLine);
}

WindowExchange::~WindowExchange() { leave("has ended"); }

ExchangeBuffers WindowExchange::buffers(std::uint32_t num_done, std::size_t) const {
  unsigned char* const buffers = window_.get() + world_size() * sizeof(RankHeader);
  const std::size_t turn = (first_ + num_done + 1) % 2 * (stride_ / 2);
  const auto at = [&](std::size_t rank) {
    return reinterpret_cast<float*>(buffers + rank * stride_ + turn);
  };
  return {at(rank()), at(0), stride_ / sizeof(float)};
}

// Waits until all ranks have arrived at an exchange.
class WindowExchange::Wait {
 public:
  Wait(WindowExchange& of, std::uint32_t number) : of_(of), number_(number) {}

  void wait() {
    constexpr int kLooks = 64;  // between two looks at the clock
    const auto spin = [&] {
      for (int i = 0; i < kLooks; ++i) {
        if (all_have_come()) return true;
        relax();
      }
      return false;
    };
    if (spin()) return;
    for (began_ = Clock::now(); Clock::now() - began_ < kSpin;)
      if (spin()) return;
    const auto used = thread_cpu_time();
    const auto before = Clock::now();
    give_way();
    of_.paused_ = (Clock::now() - before) - (thread_cpu_time() - used);
  }

 private:
  bool has_come(std::size_t rank) const {
    const std::uint32_t arrived = of_.header(rank).arrived.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(arrived - number_) >= 0;
  }
  // Ranks are looked at in their order: all before next_ have come.
  bool all_have_come() {
    while (next_ < of_.world_size() && has_come(next_)) ++next_;
    return next_ == of_.world_size();
  }

  void give_way() {
    auto called = began_, now = Clock::now();
    bool is_taken = false;
    while (!all_have_come()) {
      require_others();
      const auto before = now;
      if (!is_taken && now - began_ < kYield)
        std::this_thread::yield();
      else
        sleep(std::max<Clock::duration>(called + kBetweenCalls - now, kTaken));
      now = Clock::now();
      is_taken = is_taken || now - before > kTaken;
      if (now - called < kBetweenCalls) continue;
      called = now;
      of_.calls_.while_waiting(std::chrono::duration<double>(called - began_).count(), missing());
    }
  }

  // Whoever arrives looks at `sleepers` after it has stored `arrived`, and a sleeper at `arrived`
  // after it has counted itself. All four are sequentially consistent, so that one of the two sees
  // what the other one has written: either the sleeper is woken, or it does not fall asleep.
  void sleep(Clock::duration most) {
    RankHeader& late = of_.header(next_);
    late.sleepers.fetch_add(1);
    if (const std::uint32_t seen = late.arrived.load(); seen != number_)
      sleep_at(late.arrived, seen, most);
    late.sleepers.fetch_sub(1);
  }

  // Throws if a rank has left. It may have done so after this exchange, in which case all have
  // come.
  void require_others() {
    for (std::size_t rank = 0; rank < of_.world_size(); ++rank) {
      const RankHeader& other = of_.header(rank);
      if (!other.has_left.load(std::memory_order_acquire)) continue;
      if (all_have_come()) return;
      const std::size_t cause = other.rank_to_blame;
      of_.leave(other.why, cause);
      of_.calls_.fail(text("rank ", cause, " ", other.why), cause);
    }
  }

  std::vector<std::size_t> missing() const {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = next_; rank < of_.world_size(); ++rank)
      if (!has_come(rank)) ranks.push_back(rank);
    return ranks;
  }

  WindowExchange& of_;
  const std::uint32_t number_;
  std::size_t next_ = 0;
  Clock::time_point began_{};
};

void WindowExchange::wait_for_others(const ExchangeTag& tag) {
  const std::uint32_t number = first_ + num_done() + 1;
  RankHeader& own = header(rank());
  own.tags[number % 2] = tag;
  own.arrived.store(number);
  if (own.sleepers.load() > 0) wake_at(own.arrived);
  Wait(*this, number).wait();
  for (std::size_t r = 0; r < world_size(); ++r) {
    const RankHeader& other = header(r);
    if (other.buffer_lines != own.buffer_lines)
      calls_.fail(text("rank ", r, " has buffers of ", other.buffer_lines * kLine,
                       " bytes in the window, and rank ", rank(), " of ", own.buffer_lines * kLine,
                       "; all ranks must run the same model with the same limits"),
                  r);
    require_equal(tag, other.tags[number % 2], r, calls_);
  }
}

void WindowExchange::leave(const std::string& why, std::size_t rank_to_blame) noexcept {
  RankHeader& own = header(rank());
  if (getpid() != process_ || own.has_left.load(std::memory_order_relaxed)) return;
  own.rank_to_blame = static_cast<std::uint32_t>(rank_to_blame);
  const std::size_t length = std::min(why.size(), sizeof own.why - 1);
  std::memcpy(own.why, why.data(), length);
  own.why[length] = 0;
  own.has_left.store(1, std::memory_order_release);
  wake_at(own.arrived);
}

}  // namespace tensor_ops::decode
