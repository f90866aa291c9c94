#include "threads/pytorch_threads.h"

#if defined(__linux__)

#include <dlfcn.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>

#include "declaration/waiting.h"
#include "threads/fork.h"

namespace tensor_ops {
namespace {

// Functions of PyTorch's library and of the OpenMP runtime that it was linked with.
struct Runtime {
  int (*num_threads)() = nullptr;
  bool (*in_parallel_region)() = nullptr;
  int (*thread_num)() = nullptr;
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags) = nullptr;

  bool is_whole() const { return num_threads && in_parallel_region && thread_num && parallel; }
};

template <class Function>
void find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
}

int find_in(dl_phdr_info* info, std::size_t, void* found) {
  constexpr char kLibrary[] = "/libtorch_cpu.so";
  const char* end = info->dlpi_name ? std::strstr(info->dlpi_name, kLibrary) : nullptr;
  if (!end || end[sizeof(kLibrary) - 1]) return 0;
  void* library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return 0;
  Runtime& runtime = *static_cast<Runtime*>(found);
  find(library, "_ZN2at15get_num_threadsEv", runtime.num_threads);
  find(library, "_ZN2at18in_parallel_regionEv", runtime.in_parallel_region);
  // A library is searched before those that it needs, such as the runtime.
  find(library, "omp_get_thread_num", runtime.thread_num);
  find(library, "GOMP_parallel", runtime.parallel);
  return 1;
}

// Null where PyTorch was not loaded, or has no OpenMP, when first asked.
const Runtime* runtime() {
  static const Runtime found = [] {
    Runtime runtime;
    dl_iterate_phdr(find_in, &runtime);
    return runtime;
  }();
  return found.is_whole() ? &found : nullptr;
}

// A forked child has none of the threads, which its OpenMP runtime does not know.
std::atomic<bool> is_forked{false};
const bool notices_fork = call_at_fork(nullptr, nullptr, [] { is_forked.store(true); });

enum class Spinning { kNotAsked, kNo, kYes };

thread_local bool is_on_tensors = false;
thread_local Spinning spinning = Spinning::kNotAsked;
// Thread 1 of the team that PyTorch's runtime has for this thread; 0 before the first loop.
thread_local pid_t first_helper = 0;

// The nanoseconds for which a thread has had a CPU; negative where it has ended.
long long cpu_time_of(pid_t thread) {
  // The kernel's number of a clock of any thread of the process, of which no header has a name.
  constexpr int kOfThread = 4, kOfScheduler = 2;
  const auto clock =
      static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | kOfThread | kOfScheduler);
  timespec time;
  if (clock_gettime(clock, &time) != 0) return -1;
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// The CPU time of a thread grows while it has a CPU.
bool has_cpu(pid_t thread) {
  const long long before = cpu_time_of(thread);
  for (int i = 0; i < 8; ++i) relax();
  return cpu_time_of(thread) > before;
}

struct Region {
  void (*help)(const void* context, int number);
  const void* context;
  const Runtime& runtime;
  std::atomic<pid_t> first_helper;
};

void enter(void* given) {
  Region& region = *static_cast<Region*>(given);
  const int number = region.runtime.thread_num();
  if (number == 1 && !region.first_helper.load(std::memory_order_relaxed))
    region.first_helper.store(static_cast<pid_t>(syscall(SYS_gettid)), std::memory_order_relaxed);
  region.help(region.context, number);
}

}  // namespace

TensorCall::TensorCall(bool is_one) { is_on_tensors = is_one; }

TensorCall::~TensorCall() {
  is_on_tensors = false;
  spinning = Spinning::kNotAsked;
}

int pytorch_num_threads() {
  if (!is_on_tensors) return 0;
  const Runtime* const found = runtime();
  return found && !found->in_parallel_region() ? found->num_threads() : 0;
}

bool pytorch_threads_spin() {
  if (spinning == Spinning::kNotAsked) {
    if (first_helper && cpu_time_of(first_helper) < 0) first_helper = 0;
    const bool exist = notices_fork && !is_forked.load() && pytorch_num_threads() > 1;
    const bool may_spin = exist && (!first_helper || has_cpu(first_helper));
    spinning = may_spin ? Spinning::kYes : Spinning::kNo;
  }
  return spinning == Spinning::kYes;
}

void run_on_pytorch_threads(void (*help)(const void* context, int number), const void* context) {
  const Runtime& found = *runtime();
  Region region{help, context, found, first_helper};
  found.parallel(enter, &region, 0, 0);
  first_helper = region.first_helper.load();
}

}  // namespace tensor_ops

#else

namespace tensor_ops {

TensorCall::TensorCall(bool) {}
TensorCall::~TensorCall() = default;
int pytorch_num_threads() { return 0; }
bool pytorch_threads_spin() { return false; }
void run_on_pytorch_threads(void (*)(const void* context, int number), const void*) {}

}  // namespace tensor_ops

#endif
