// Hammers the thread pool and the result pool from several threads at once, forks among them, and
// checks that every piece is done once and no block is handed out twice. Its use is with
// ThreadSanitizer, which sees the races that end well: `nox -s sanitize`.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "memory/result_pool.h"
#include "threads/pool.h"

namespace {

using namespace tensor_ops;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "stress_pools: %s\n", what);
  std::_Exit(1);
}

// Each piece writes its own place, as kernels do, and the caller reads them all: without the pool's
// own ordering these are races.
struct Job {
  std::vector<int> times;
  int slow_piece;
};

void do_piece(const void* context, int piece) {
  const Job& job = *static_cast<const Job*>(context);
  ++const_cast<int&>(job.times[piece]);
  if (piece == job.slow_piece) std::this_thread::yield();
}

void run_job(std::mt19937& random) {
  static constexpr int kPieces[] = {1, 2, 3, 7, 64, 65, 500, kMostPieces};
  const int pieces = kPieces[random() % (random() % 16 ? 7 : 8)];
  const int threads = 1 + static_cast<int>(random() % 8);
  // On this thread's stack, and gone when it returns: a helper that comes late must not touch it.
  Job job{std::vector<int>(pieces), static_cast<int>(random() % pieces)};
  run_pieces(pieces, threads, do_piece, &job);
  for (int times : job.times) require(times == 1, "a piece was not done once");
}

struct Freed {
  void operator()(void* block) const { free_block(block); }
};
using Held = std::unique_ptr<void, Freed>;

// Blocks freed by another thread than the one that has allocated them.
std::atomic<void*> handed_over[4];

void use_blocks(std::mt19937& random, int mark) {
  const std::size_t bytes = kLeastKept / 2 + random() % (4 * kLeastKept);
  Held block(allocate_block(bytes));
  require(block != nullptr, "no memory");
  require(reinterpret_cast<std::uintptr_t>(block.get()) % 64 == 0, "a block is not aligned");
  (void)is_fresh_block(block.get());
  std::memset(block.get(), mark, bytes);
  if (random() % 4 == 0) {
    const std::size_t other = kLeastKept / 2 + random() % (4 * kLeastKept);
    void* const moved = reallocate_block(block.get(), other);
    require(moved != nullptr, "no memory");
    (void)block.release();
    block.reset(moved);
  }
  const auto* first = static_cast<const unsigned char*>(block.get());
  for (std::size_t i = 0; i < kLeastKept / 2; i += 997)
    require(first[i] == static_cast<unsigned char>(mark), "a block is another's as well");
  Held given(handed_over[random() % 4].exchange(block.release()));
}

void change_pool(std::mt19937& random) {
  switch (random() % 3) {
    case 0:
      return (void)trim_pool();
    case 1:
      return set_pool_limit(random() % 4 ? 64 * kLeastKept : 0);
    default: {
      const PoolState state = pool_state();
      require(state.held_bytes >= state.held_blocks * kLeastKept, "the pool counts wrongly");
    }
  }
}

void work(unsigned seed, int rounds) {
  std::mt19937 random(seed);
  for (int round = 0; round < rounds; ++round) {
    run_job(random);
    use_blocks(random, static_cast<int>(seed % 251) + 1);
    if (random() % 8 == 0) change_pool(random);
    if (random() % 64 == 0) (void)helpers_awake();
  }
}

// A child has the memory of the pools and none of their threads, and must get on. ThreadSanitizer
// cannot follow threads that a child of several threads starts.
void work_in_child(unsigned seed) {
#if defined(__SANITIZE_THREAD__)
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) use_blocks(random, static_cast<int>(seed % 251) + 1);
#else
  work(seed, 20);
#endif
}

void fork_one(unsigned seed) {
  const pid_t child = fork();
  require(child >= 0, "cannot fork");
  if (child == 0) {
    alarm(60);
    work_in_child(seed);
    std::_Exit(0);
  }
  int status = 0;
  require(waitpid(child, &status, 0) == child, "cannot wait for a forked child");
  require(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, "a forked child did not end");
  require(status == 0, "a forked child has failed");
}

void fork_all(int forks) {
  for (int i = 0; i < forks; ++i) fork_one(100 + static_cast<unsigned>(i));
}

// AddressSanitizer's own allocator leaves its locks in a child as another thread had them.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kForksAmongThreads = false;
#else
constexpr bool kForksAmongThreads = true;
#endif

}  // namespace

// stress_pools [ROUNDS [FORKS]]
int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  const int forks = argc > 2 ? std::atoi(argv[2]) : 20;
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed, rounds);
  if (kForksAmongThreads) fork_all(forks);
  for (std::thread& thread : threads) thread.join();
  if (!kForksAmongThreads) fork_all(forks);
  for (auto& block : handed_over) free_block(block.exchange(nullptr));
  trim_pool();
  const PoolState state = pool_state();
  require(state.used_blocks == 0 && state.held_bytes == 0, "blocks are left over");
  std::printf("stress_pools: 4 threads, %d rounds, %d forks: fine\n", rounds, forks);
}
