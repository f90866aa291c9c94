#include "threads/placement.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tensor_ops {

#if defined(__linux__)

void Placement::begin(std::uint32_t job) {
  const int cpu = sched_getcpu();
  callers_cpu_.store(cpu, std::memory_order_relaxed);
  if (cpu >= 0 && cpu < kCpus) taken_by_[cpu].store(job, std::memory_order_relaxed);
}

void Placement::settle(std::uint32_t job) {
  const int cpu = sched_getcpu();
  if (cpu < 0 || cpu >= kCpus) return;
  if (taken_by_[cpu].exchange(job, std::memory_order_relaxed) != job) return;
  // The main thread's mask is what taskset sets; our own is what we made of it the last time.
  cpu_set_t free;
  if (sched_getaffinity(getpid(), sizeof free, &free) != 0) return;
  for (int other = 0; other < kCpus && other < CPU_SETSIZE; ++other)
    if (taken_by_[other].load(std::memory_order_relaxed) == job) CPU_CLR(other, &free);
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return;
  const int now = sched_getcpu();
  if (now >= 0 && now < kCpus) taken_by_[now].store(job, std::memory_order_relaxed);
}

void Placement::ask_for_short_turns() {
#if defined(SYS_sched_setattr)
  // struct sched_attr, which not all C libraries have. Systems before Linux 6.12 ignore the runtime
  // of ordinary threads.
  struct {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } attributes = {sizeof attributes, SCHED_OTHER, 0, 0, 0, 100000, 0, 0};
  syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

bool Placement::is_beside_caller() const {
  return sched_getcpu() == callers_cpu_.load(std::memory_order_relaxed);
}

#else

void Placement::begin(std::uint32_t) {}
void Placement::settle(std::uint32_t) {}
void Placement::ask_for_short_turns() {}
bool Placement::is_beside_caller() const { return false; }

#endif

}  // namespace tensor_ops
