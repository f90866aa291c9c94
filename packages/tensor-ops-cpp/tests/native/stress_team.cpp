// Runs jobs of teams of threads from several threads at once, lets their threads fall asleep
// between some of them, and checks that every thread sees what the others wrote before they met.
// Its use is with ThreadSanitizer, which sees the races that end well: `nox -s sanitize`.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "decode/executor/team.h"
#include "decode/executor/tile_claims.h"

namespace {

using tensor_ops::decode::Team;
using tensor_ops::decode::TileClaims;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "stress_team: %s\n", what);
  std::_Exit(1);
}

// As in a step: each thread writes its own place, all meet, each reads what the others wrote.
struct Job {
  Team& team;
  int meetings, slow_worker;
  bool is_very_slow;
  std::vector<int> written;
  std::vector<TileClaims>& claims;  // of each worker
  std::uint32_t step;
  std::vector<std::atomic<int>> times_taken;  // of the tiles of all
};

constexpr std::size_t kTiles = 23;  // of each worker

void take_tiles(Job& job, std::size_t worker) {
  const std::size_t workers = job.written.size();
  for (std::size_t i = 0; i < workers; ++i) {
    const std::size_t owner = (worker + i) % workers;
    for (;;) {
      const std::size_t together = 1 + job.step % 2;
      const auto tiles = job.claims[owner].take(job.step, kTiles, i == 0, together);
      if (tiles.begin == tiles.end) break;
      for (std::size_t t = tiles.begin; t < tiles.end; ++t) ++job.times_taken[owner * kTiles + t];
    }
  }
}

void work(Job& job, std::size_t worker) {
  for (int meeting = 1; meeting <= job.meetings; ++meeting) {
    if (static_cast<int>(worker) == job.slow_worker) {
      std::this_thread::yield();
      if (job.is_very_slow) std::this_thread::sleep_for(std::chrono::microseconds(80));
    }
    job.written[worker] = meeting;
    job.team.meet(worker);
    if (meeting == 1) take_tiles(job, worker);
    for (int each : job.written) require(each == meeting, "a worker has not been met");
    job.team.meet(worker);
  }
}

void run_job(Team& team, std::mt19937& random, std::vector<TileClaims>& claims,
             std::uint32_t step) {
  const std::size_t workers = 1 + random() % team.size();
  // On this thread's stack, and gone when it returns. The others may fall asleep while they wait.
  Job job{team,
          static_cast<int>(random() % 4),
          static_cast<int>(random() % workers),
          random() % 8 == 0,
          std::vector<int>(workers),
          claims,
          step,
          std::vector<std::atomic<int>>(workers * kTiles)};
  team.run(workers, [&](std::size_t worker) { work(job, worker); });
  for (int each : job.written) require(each == job.meetings, "a worker has done too little");
  for (const auto& each : job.times_taken)
    require(each == (job.meetings > 0), "a tile is not taken once");
  require(team.without_processor().size() == workers, "a worker's time is missing");
  for (const auto time : team.without_processor())
    require(time < std::chrono::hours(1), "a time that cannot be");
}

void run_teams(unsigned seed, int rounds) {
  std::mt19937 random(seed);
  for (int round = 0; round < rounds; ++round) {
    // Often of more threads than there are processors, sometimes of far more.
    Team team(1 + random() % (round % 16 == 0 ? 16 : 4));
    std::vector<TileClaims> claims(team.size());
    for (unsigned jobs = random() % 16; jobs > 0; --jobs) {
      run_job(team, random, claims, jobs);
      // Around the time that threads spin before they sleep.
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 120));
    }
  }
}

// A child has the memory of its parent's team and none of its threads: it can let go of it, and
// make a team of its own. ThreadSanitizer cannot follow threads that such a child starts.
void fork_one() {
  auto team = std::make_unique<Team>(3);
  std::mt19937 random(1);
  std::vector<TileClaims> claims(3);
  run_job(*team, random, claims, 1);
  const pid_t child = fork();
  require(child >= 0, "cannot fork");
  if (child == 0) {
    alarm(60);
    team.reset();
#if !defined(__SANITIZE_THREAD__)
    run_teams(1, 5);
#endif
    std::_Exit(0);
  }
  int status = 0;
  require(waitpid(child, &status, 0) == child, "cannot wait for a forked child");
  require(status == 0, "a forked child has failed");
  run_job(*team, random, claims, 2);
}

}  // namespace

// stress_team [ROUNDS [FORKS]]
int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  const int forks = argc > 2 ? std::atoi(argv[2]) : 20;
  for (int i = 0; i < forks; ++i) fork_one();
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 3; ++seed) threads.emplace_back(run_teams, seed, rounds);
  for (std::thread& thread : threads) thread.join();
  std::printf("stress_team: 3 threads, %d rounds, %d forks: fine\n", rounds, forks);
}
