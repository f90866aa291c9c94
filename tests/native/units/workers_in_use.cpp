// When workers are left out of steps, and when they are tried again.
#include "decode/executor/workers_in_use.h"

#include "require.h"

namespace {

using std::chrono::microseconds;
using tensor_ops::decode::WorkersInUse;

constexpr microseconds kStep{5000};

// The number of workers after some steps, in each of which one worker had no processor for this
// percentage of the time.
std::size_t count_after(WorkersInUse& workers, int steps, int lost_percent) {
  for (int i = 0; i < steps; ++i) workers.note(kStep, kStep * lost_percent / 100);
  return workers.count();
}

// The milliseconds without any loss until the number of workers changes.
int pause_of(WorkersInUse& workers) {
  const std::size_t count = workers.count();
  int steps = 1;
  while (count_after(workers, 1, 0) == count && steps < 1000) ++steps;
  require(workers.count() > count, "no more than ", count, " workers are tried");
  return steps * static_cast<int>(kStep.count()) / 1000;
}

void check_least_loss() {
  // Without 2 of 16 the others have 2/16 more to do.
  WorkersInUse workers(16);
  require(count_after(workers, 1000, 11) == 16, "a loss of less than they do takes workers away");
  require(count_after(workers, 4, 13) == 14, "a loss of more than they do takes none away");
  WorkersInUse two(2);
  require(count_after(two, 1000, 30) == 2, "a third of a step lost takes one of two away");
  require(count_after(two, 4, 40) == 1, "more than a third lost leaves both");
}

void check_judged_time() {
  WorkersInUse workers(16);
  require(count_after(workers, 3, 100) == 16, "15 ms are judged");
  require(count_after(workers, 1, 100) == 14, "20 ms are not");
  require(count_after(workers, 3, 100) == 14, "what was judged is judged again");
}

void check_bounds() {
  WorkersInUse workers(16);
  require(count_after(workers, 100, 50) < 4, "a loss that stays leaves many workers");
  require(count_after(workers, 10000, 0) == 16, "workers do not come back");
  require(count_after(workers, 10000, 100) <= 2, "more than one worker more is tried");
  WorkersInUse one(1);
  require(count_after(one, 100, 90) == 1, "the last worker goes");
  require(count_after(one, 100, 0) == 1, "there are more workers than threads");
}

void check_pauses() {
  WorkersInUse workers(8);
  count_after(workers, 1000, 0);  // so that the first loss is not one of a trial
  require(count_after(workers, 4, 100) == 7, "not one of 8 workers has gone");
  for (int expected : {100, 200, 400, 800, 800}) {
    const int pause = pause_of(workers);
    require(pause == expected, "a worker more is tried after ", pause, " ms, not ", expected);
    require(count_after(workers, 4, 100) == 7, "a trial that failed has left its worker");
  }
  require(pause_of(workers) == 800, "the longest pause grows");
  count_after(workers, 200, 0);  // a trial that lasted
  count_after(workers, 4, 100);
  require(pause_of(workers) == 100, "a trial that lasted does not make the pause short again");
}

}  // namespace

int main() {
  check_least_loss();
  check_judged_time();
  check_bounds();
  check_pauses();
}
