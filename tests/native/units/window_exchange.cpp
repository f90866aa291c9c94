// Ranks that meet in a window of shared memory, as threads and as processes.
#include "decode/ranks/window_exchange.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "decode/ranks/callback_exchange.h"
#include "require.h"

namespace {

using tensor_ops::Error;
using tensor_ops::text;
using tensor_ops::decode::CallbackExchange;
using tensor_ops::decode::Exchange;
using tensor_ops::decode::RankCalls;
using tensor_ops::decode::RankHeader;
using tensor_ops::decode::Step;
using tensor_ops::decode::WindowExchange;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMost = 300;  // numbers

struct Calls : RankCalls {
  double deadline = 60;  // seconds
  std::size_t times_called = 0;
  std::vector<std::size_t> missing;

  void while_waiting(double seconds, const std::vector<std::size_t>& ranks) override {
    ++times_called;
    missing = ranks;
    if (seconds > deadline) throw Error("it takes too long");
  }
  void exchange(const std::shared_ptr<float>&, float*, float*, std::size_t) override {
    throw Error("there is a window");
  }
  [[noreturn]] void fail(const std::string& message, std::size_t rank) override {
    throw Error(text(message, " [", rank, "]"));
  }
};

// Zeroed memory that forked children share.
std::shared_ptr<unsigned char> new_window(std::size_t world_size) {
  const std::size_t bytes = WindowExchange::bytes(world_size, kMost);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "no memory");
  return {static_cast<unsigned char*>(memory), [bytes](void* at) { munmap(at, bytes); }};
}

// A number that no other rank, exchange or place has.
float number(std::size_t rank, std::uint32_t exchange, std::size_t i) {
  return static_cast<float>(rank * 100'000 + exchange % 100 * 1000 + i);
}

// Meets the others at node 3 of a step with this token.
void meet(Exchange& exchange, std::uint32_t number, std::size_t rows, std::size_t columns,
          std::int32_t token = 7) {
  std::int32_t zero = 0;
  Step step{};
  step.tokens = &token;
  step.positions = step.slots = &zero;
  step.num_tokens = 1;
  step.number = number;
  exchange.begin_step(step);
  exchange.meet(3, rows, columns);
}

// Exchanges vectors of several lengths, and checks what all ranks have sent.
void exchange_often(WindowExchange& exchange, std::uint32_t times) {
  for (std::uint32_t k = 0; k < times; ++k) {
    const std::uint32_t count = 1 + k * 37 % kMost;
    const auto buffers = exchange.buffers(exchange.num_done(), count);
    for (std::size_t i = 0; i < count; ++i) buffers.sent[i] = number(exchange.rank(), k, i);
    meet(exchange, k, 1, count);
    for (std::size_t rank = 0; rank < exchange.world_size(); ++rank)
      for (std::size_t i = 0; i < count; ++i)
        require(buffers.received[rank * buffers.stride + i] == number(rank, k, i), "exchange ", k,
                ": rank ", exchange.rank(), " has not what rank ", rank, " has sent");
  }
  require(exchange.num_done() == times, "the exchanges are not counted");
}

using OfRank = std::function<void(std::size_t rank)>;

void in_threads(std::size_t world_size, const OfRank& run) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < world_size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

// Returns how each process has ended.
std::vector<int> in_processes(std::size_t world_size, const OfRank& run) {
  std::vector<pid_t> children;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    children.push_back(fork());
    if (children.back() > 0) continue;
    alarm(60);
    run(rank);
    std::_Exit(0);
  }
  std::vector<int> ends(world_size);
  for (std::size_t rank = 0; rank < world_size; ++rank) waitpid(children[rank], &ends[rank], 0);
  return ends;
}

// The message of the Error that this throws; empty for nothing.
template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void check_threads(std::size_t world_size, std::uint32_t times) {
  const auto window = new_window(world_size);
  in_threads(world_size, [&](std::size_t rank) {
    Calls calls;
    WindowExchange exchange(rank, world_size, kMost, window, calls);
    exchange_often(exchange, times);
  });
}

void check_processes(std::size_t world_size, std::uint32_t times) {
  const auto window = new_window(world_size);
  const std::vector<int> ends = in_processes(world_size, [&](std::size_t rank) {
    Calls calls;
    WindowExchange exchange(rank, world_size, kMost, window, calls);
    exchange_often(exchange, times);
  });
  for (int end : ends) require(end == 0, "a process has ended with ", end);
}

void check_wrap_around() {
  constexpr std::size_t kRanks = 3;
  const auto window = new_window(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank)
    reinterpret_cast<RankHeader*>(window.get())[rank].arrived = 0xffff'fff0;
  in_threads(kRanks, [&](std::size_t rank) {
    Calls calls;
    WindowExchange exchange(rank, kRanks, kMost, window, calls);
    exchange_often(exchange, 40);
  });
  require(reinterpret_cast<RankHeader*>(window.get())->arrived == 0xffff'fff0 + 40,
          "the number has not wrapped around");
}

// The others are asked about twenty times a second whether to go on.
void check_death() {
  const auto window = new_window(3);
  const std::vector<int> ends = in_processes(3, [&](std::size_t rank) {
    Calls calls;
    calls.deadline = 0.3;
    WindowExchange exchange(rank, 3, kMost, window, calls);
    exchange_often(exchange, 10);
    if (rank == 1) raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(rank == 2 ? 200 : 0));
    const auto start = Clock::now();
    const std::string error = error_of([&] { meet(exchange, 10, 1, 1); });
    if (rank == 0) {
      require(error == "it takes too long", "the wait ends with: ", error);
      require(calls.missing == std::vector<std::size_t>{1}, "another rank is missing");
      require(calls.times_called >= 3 && calls.times_called <= 10, "called ", calls.times_called,
              " times in 0.3 s");
    } else {
      require(error == "rank 0 has failed: it takes too long [0]", "rank 2 ends with: ", error);
      require(Clock::now() - start < std::chrono::milliseconds(900), "rank 2 waits on");
    }
  });
  require(ends[0] == 0 && ends[2] == 0, "a process has failed");
  require(WIFSIGNALED(ends[1]) && WTERMSIG(ends[1]) == SIGKILL, "rank 1 is alive");
}

void check_divergence() {
  const auto window = new_window(2);
  const auto errors_with = [&](std::size_t rows, std::int32_t token) {
    const auto of_both = new_window(2);
    std::vector<std::string> errors(2);
    in_threads(2, [&](std::size_t rank) {
      Calls calls;
      WindowExchange exchange(rank, 2, kMost, of_both, calls);
      errors[rank] = error_of(
          [&] { rank == 0 ? meet(exchange, 1, 1, 5) : meet(exchange, 1, rows, 5, token); });
    });
    return errors;
  };
  auto errors = errors_with(2, 7);
  require(errors[0] ==
              "rank 1 is at node 3 of its step 1 with 2 rows of 5 columns, and rank 0 is "
              "at node 3 of its step 1 with 1 rows of 5 columns; all ranks must run the "
              "same steps of the same model [1]",
          errors[0]);
  require(errors[1].find("[0]") != std::string::npos, errors[1]);
  errors = errors_with(1, 8);
  require(errors[0].find("tokens") != std::string::npos, errors[0]);

  std::vector<std::string> of_sizes(2);
  in_threads(2, [&](std::size_t rank) {
    Calls calls;
    WindowExchange exchange(rank, 2, rank == 0 ? kMost : 16, window, calls);
    of_sizes[rank] = error_of([&] { meet(exchange, 1, 1, 5); });
  });
  require(of_sizes[0].find("rank 1 has buffers of 64 bytes") == 0, of_sizes[0]);
}

// A rank that will not come ends the wait of another one, also of one that sleeps.
void check_leaving() {
  const auto window = new_window(2);
  in_threads(2, [&](std::size_t rank) {
    Calls calls;
    WindowExchange exchange(rank, 2, kMost, window, calls);
    exchange_often(exchange, 3);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      exchange.leave("has closed its executable");
      return exchange.leave("has done something else");
    }
    const std::string error = error_of([&] { meet(exchange, 1, 1, 5); });
    require(error == "rank 1 has closed its executable [1]", error);
  });
}

// A rank that leaves after an exchange does not spoil it for a rank that comes to look later.
void check_leaving_afterwards() {
  for (int time = 0; time < 50; ++time) check_threads(3, 1);
}

// A forked child destroys its copy of an exchange, which changes nothing for the parent.
void check_fork() {
  const auto window = new_window(2);
  Calls calls;
  auto other = std::make_unique<WindowExchange>(1, 2, kMost, window, calls);
  const pid_t child = fork();
  if (child == 0) {
    other.reset();
    std::_Exit(0);
  }
  int end = 1;
  waitpid(child, &end, 0);
  require(end == 0, "a forked child ends with ", end);
  in_threads(2, [&](std::size_t rank) {
    if (rank == 1) return exchange_often(*other, 20);
    Calls own;
    WindowExchange exchange(rank, 2, kMost, window, own);
    exchange_often(exchange, 20);
  });
}

// In turns: what a rank has sent is behind that of the rank before it.
void check_callback() {
  struct Gathering : Calls {
    bool has_other_step = false;
    void exchange(const std::shared_ptr<float>& memory, float* sent, float* received,
                  std::size_t count) override {
      require(memory.get() == sent, "other memory");
      for (std::size_t rank = 0; rank < 3; ++rank) {
        std::memcpy(received + rank * count, sent, count * sizeof(float));
        received[rank * count] += static_cast<float>(rank);
      }
      // The tag of the last rank begins behind its five numbers.
      if (has_other_step) received[2 * count + 5] = 0;
    }
  } calls;
  CallbackExchange exchange(0, 3, kMost, calls);
  for (std::uint32_t k = 0; k < 3; ++k) {
    const auto buffers = exchange.buffers(exchange.num_done(), 5);
    for (std::size_t i = 0; i < 5; ++i) buffers.sent[i] = number(0, k, i);
    meet(exchange, k, 1, 5);
    for (std::size_t rank = 0; rank < 3; ++rank)
      require(buffers.received[rank * buffers.stride] == number(0, k, 0) + static_cast<float>(rank),
              "rank ", rank, " has sent something else");
  }
  calls.has_other_step = true;
  const std::string error = error_of([&] { meet(exchange, 3, 1, 5); });
  require(error.find("[2]") != std::string::npos, "another step is not found: ", error);
}

// ThreadSanitizer forbids threads in a process that has forked before.
#if defined(__SANITIZE_THREAD__)
constexpr bool kMayFork = false;
#else
constexpr bool kMayFork = true;
#endif

}  // namespace

// window_exchange [TIMES]
int main(int argc, char** argv) {
  const auto times = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 2000);
  if (kMayFork) {
    check_processes(2, times);
    check_processes(4, times / 4);
    check_death();
    check_fork();
  }
  check_threads(2, times);
  check_threads(4, times / 4);
  check_threads(9, times / 16);
  check_wrap_around();
  check_divergence();
  check_leaving();
  check_leaving_afterwards();
  check_callback();
}
