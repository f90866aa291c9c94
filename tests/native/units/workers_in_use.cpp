// Which number of workers is found beside simulated processes, how soon, and what finding it costs.
#include "decode/executor/workers_in_use.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "require.h"

namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using tensor_ops::decode::WorkersInUse;

// A machine whose clock only steps turn, and whose processors are shared evenly. A step also takes
// longer if one of several workers shares its processor, since the others wait for it.
struct Machine {
  std::size_t processors, busy = 0;
  double waiting = 2;      // how many times longer it takes then
  double lost_anyway = 0;  // the part of a step that a worker always has no processor for
  nanoseconds of_one_worker = milliseconds(8);
  WorkersInUse::Clock::time_point now{};

  std::size_t sharing(std::size_t workers) const {
    return workers + busy > processors ? std::min(workers, workers + busy - processors) : 0;
  }
  nanoseconds step(std::size_t workers, std::size_t tokens) const {
    const auto count = static_cast<double>(workers);
    const double shared = std::max((count + static_cast<double>(busy)) / processors, 1.0);
    const double slower = sharing(workers) > 0 && workers > 1 ? shared * waiting : shared;
    const double of_one = static_cast<double>(of_one_worker.count()) * (1 + tokens / 16.0);
    return nanoseconds(std::llround(of_one * slower / count));
  }
  // Takes a step with as many workers as are of use, and returns their number.
  std::size_t take_step(WorkersInUse& workers, std::size_t tokens = 1) {
    const std::size_t count = workers.count(tokens);
    const auto took = step(count, tokens);
    std::vector<nanoseconds> without(count, duration_cast<nanoseconds>(took * lost_anyway));
    for (std::size_t i = 0; i < sharing(count); ++i) without[(i * 5 + 1) % count] = took / 2;
    now += took;
    workers.note(tokens, now - took, now, without);
    return count;
  }
  // How long steps with each number of workers took, in the next milliseconds.
  std::map<std::size_t, double> run(WorkersInUse& workers, int for_ms) {
    std::map<std::size_t, double> taken;
    const auto end = now + milliseconds(for_ms);
    while (now < end) {
      const auto began = now;
      const std::size_t count = take_step(workers);
      taken[count] += duration<double, std::milli>(now - began).count();
    }
    return taken;
  }
};

// The number of workers that most of the time is spent with. Steps with the others, which are
// tried, may take at most this part of the time more than that.
std::size_t settled(Machine& machine, WorkersInUse& workers, double cost = 0.012) {
  const auto taken = machine.run(workers, 20000);
  const std::size_t most =
      std::max_element(taken.begin(), taken.end(), [](const auto& one, const auto& other) {
        return one.second < other.second;
      })->first;
  double all = 0, needed = 0;
  for (const auto& [count, time] : taken) {
    all += time;
    needed += time * duration<double>(machine.step(most, 1)) / machine.step(count, 1);
  }
  require(all <= (1 + cost) * needed, "trials beside ", most, " workers cost ",
          100 * (all / needed - 1), " % of the time");
  return most;
}

void check_quiet_machine() {
  for (const std::size_t most : {1, 2, 8, 64}) {
    Machine machine{most};
    machine.lost_anyway = 0.04;
    WorkersInUse workers(most);
    require(settled(machine, workers, 1e-6) == most, "workers are left out of ", most);
  }
}

void check_best_number(std::size_t most, Machine machine) {
  WorkersInUse workers(most);
  machine.run(workers, 3000);
  const std::size_t found = settled(machine, workers);
  std::size_t best = 1;
  for (std::size_t count = 2; count <= most; ++count)
    if (machine.step(count, 1) < machine.step(best, 1)) best = count;
  require(machine.step(found, 1) <= 1.1 * machine.step(best, 1), "of ", most, " workers ", found,
          " are in use, not ", best, ", beside ", machine.busy, " processes on ",
          machine.processors, " processors, waiting ", machine.waiting);
  machine.busy = 0;
  machine.run(workers, 3000);
  const std::size_t all = std::min(most, machine.processors);
  require(settled(machine, workers) == all, all, " workers do not come back of ", found,
          ", waiting ", machine.waiting);
}

void check_best_numbers() {
  for (const double waiting : {1.5, 2.0, 3.0}) {
    for (const std::size_t processors : {2, 8, 64})
      for (std::size_t busy = 1; busy <= 2 * processors; busy += (busy + 7) / 8) {
        check_best_number(processors, {processors, busy, waiting});
        if (processors == 2) check_best_number(4, {processors, busy, waiting});
      }
    for (const std::size_t processors : {2, 8, 64})
      check_best_number(2 * processors, {processors, 0, waiting});
  }
}

// A worker less costs more than the processor that one lacks.
void check_small_loss() {
  Machine machine{2, 1};
  machine.waiting = 1.2;
  WorkersInUse workers(2);
  require(settled(machine, workers) == 2, "one of two workers is left out");
}

void check_how_soon() {
  Machine machine{2};
  WorkersInUse workers(2);
  machine.run(workers, 1000);
  machine.busy = 1;
  require(machine.run(workers, 200).count(1) == 1, "no trial in 200 ms");
  require(machine.run(workers, 100).count(2) == 0, "a trial of one worker has not lasted");
  machine.run(workers, 1000);
  machine.busy = 0;
  machine.run(workers, 2000);
  require(machine.run(workers, 100).count(1) == 0, "the second worker is not tried in two seconds");
}

// Steps take as long as they have tokens: only those with equally many are compared.
void check_mixed_steps() {
  Machine machine{2, 1};
  WorkersInUse workers(2);
  std::map<std::size_t, int> steps;
  for (std::size_t i = 0; i < 4000; ++i) ++steps[machine.take_step(workers, 1 + i * i % 63)];
  require(steps[1] > 3800, "only ", steps[1], " steps have one worker");
}

// In a trial, steps that there is nothing to compare with are no part of it.
void check_other_steps_in_a_trial() {
  Machine machine{2, 1};
  WorkersInUse workers(2);
  while (machine.take_step(workers) != 1) {
  }
  for (const std::size_t tokens : {2, 3, 4})
    require(machine.take_step(workers, tokens) == 2, "a step without comparison is a trial's");
  require(machine.take_step(workers, 2) == 1, "a step that can be compared is none of a trial's");
}

void check_many_tokens() {
  Machine machine{2, 1};
  WorkersInUse workers(2);
  constexpr std::size_t kMany = WorkersInUse::kManyTokens;
  for (int i = 0; i < 1000; ++i)
    require(machine.take_step(workers, kMany) == 2, "a worker is left out of a long step");
  require(machine.take_step(workers) == 2, "long steps are judged");
}

void check_held() {
  Machine machine{8, 4};
  WorkersInUse workers(8);
  workers.hold(3);
  require(machine.run(workers, 5000).size() == 1, "the number that is held changes");
  require(workers.count(1) == 3 && workers.count(WorkersInUse::kManyTokens) == 3, "not 3");
  workers.hold(0);
  machine.run(workers, 3000);
  require(settled(machine, workers) == 4, "the number stays held");
}

}  // namespace

int main() {
  check_quiet_machine();
  check_best_numbers();
  check_small_loss();
  check_how_soon();
  check_mixed_steps();
  check_other_steps_in_a_trial();
  check_many_tokens();
  check_held();
}
