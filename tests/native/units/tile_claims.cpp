// Every tile of a step is handed out once, to whoever asks first.
#include "decode/executor/tile_claims.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "require.h"

namespace {

using tensor_ops::decode::TileClaims;

// In a random order of who asks: the owner's tiles are the first that are left, the others' the
// last, and both get them by one or by two.
void check_step(TileClaims& claims, std::uint32_t step, std::size_t all, std::mt19937& random) {
  std::size_t begin = 0, end = all;
  while (begin < end) {
    const bool is_owner = random() % 2;
    const std::size_t together = 1 + random() % 2, left = end - begin;
    const auto taken = claims.take(step, all, is_owner, together);
    const std::size_t count = taken.end - taken.begin;
    require(taken.begin < taken.end, "step ", step, ": none of ", left, " tiles is taken");
    require(count % together == 0 || count == left, "step ", step, ": ", count, " of ", left,
            " tiles are taken by ", together);
    if (is_owner) {
      require(taken.begin == begin && taken.end <= end, "step ", step, ": the owner takes from ",
              taken.begin, " to ", taken.end, ", where ", begin, " to ", end, " are left");
      begin = taken.end;
    } else {
      require(taken.end == end && taken.begin >= begin, "step ", step, ": another takes from ",
              taken.begin, " to ", taken.end, ", where ", begin, " to ", end, " are left");
      end = taken.begin;
    }
  }
  for (bool is_owner : {true, false}) {
    const auto taken = claims.take(step, all, is_owner, 1);
    require(taken.begin == taken.end, "step ", step, ": more than all ", all, " tiles are taken");
  }
}

void check_sizes() {
  std::mt19937 random(1);
  TileClaims claims;
  for (std::size_t all = 0; all < 300; ++all)
    check_step(claims, static_cast<std::uint32_t>(all), all, random);
  check_step(claims, 1000, TileClaims::kMost, random);
}

// A new step forgets the claims of the last one, also where the numbers of steps begin again at 0.
void check_steps() {
  std::mt19937 random(2);
  for (std::uint32_t first : {0u, (1u << 24) - 3, ~0u - 2}) {
    TileClaims claims;
    for (std::uint32_t i = 0; i < 6; ++i) {
      check_step(claims, first + 2 * i, 23, random);
      claims.take(first + 2 * i + 1, 23, true, 1);
    }
  }
}

// Threads that begin each step together, as those of a team do.
void check_threads() {
  constexpr std::size_t kTiles = 200, kThreads = 3, kSteps = 3000;
  TileClaims claims;
  std::vector<std::atomic<int>> times_taken(kTiles);
  std::atomic<std::size_t> arrived{0};
  const auto take_all = [&](std::size_t thread) {
    for (std::uint32_t step = 1; step <= kSteps; ++step) {
      for (++arrived; arrived < step * kThreads;) std::this_thread::yield();
      for (;;) {
        const auto tiles = claims.take(step, kTiles, thread == 0, 1 + step % 2);
        if (tiles.begin == tiles.end) break;
        for (std::size_t i = tiles.begin; i < tiles.end; ++i) ++times_taken[i];
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) threads.emplace_back(take_all, t);
  for (std::thread& each : threads) each.join();
  for (std::size_t i = 0; i < kTiles; ++i)
    require(times_taken[i] == kSteps, "in ", kSteps, " steps tile ", i, " is taken ",
            times_taken[i], " times");
}

}  // namespace

int main() {
  check_sizes();
  check_steps();
  check_threads();
}
