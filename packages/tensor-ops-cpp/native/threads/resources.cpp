#include "threads/threads.h"

#if defined(_WIN32)
#include "declaration/windows_api.h"
#else
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace tensor_ops {
namespace {

// The directories of the process's cgroup and of its ancestors, for a version 1 controller or, the
// name being empty, for version 2. Inside a container the path may not exist below the mount: then
// only the mount's own directory is left.
std::vector<std::string> cgroup_directories(const std::string& controller) {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string mount = "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
    std::vector<std::string> directories;
    for (std::string path = line.substr(second + 1); path.size() > 1;
         path.erase(path.find_last_of('/')))
      directories.push_back(mount + path);
    directories.push_back(mount);
    return directories;
  }
  return {};
}

// The file's words; none where it cannot be read.
std::vector<std::string> words_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

// 0 for anything but a positive number ("max", "-1", nothing).
double positive(const std::vector<std::string>& words, std::size_t index) {
  if (index >= words.size()) return 0;
  const double value = std::strtod(words[index].c_str(), nullptr);
  return value > 0 ? value : 0;
}

double cpu_quota() {
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& directory : cgroup_directories("")) {
    const auto limit = words_of(directory + "/cpu.max");
    const double quota = positive(limit, 0), period = positive(limit, 1);
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  }
  for (const std::string& directory : cgroup_directories("cpu")) {
    const double quota = positive(words_of(directory + "/cpu.cfs_quota_us"), 0);
    const double period = positive(words_of(directory + "/cpu.cfs_period_us"), 0);
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  }
  return least;
}

// In bytes; 0 where the system does not say.
double memory_of_machine() {
#if defined(_WIN32)
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? static_cast<double>(status.ullTotalPhys) : 0;
#else
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<double>(pages) * static_cast<double>(page) : 0;
#endif
}

// 0 unless OMP_NUM_THREADS is, or is a list that starts with, a positive number.
int omp_num_threads() {
  const char* setting = std::getenv("OMP_NUM_THREADS");
  if (!setting) return 0;
  char* end = nullptr;
  const long value = std::strtol(setting, &end, 10);
  while (*end == ' ') ++end;
  const bool is_valid = end != setting && (*end == '\0' || *end == ',') && value > 0;
  return is_valid ? static_cast<int>(std::min<long>(value, std::numeric_limits<int>::max())) : 0;
}

}  // namespace

std::vector<int> affinity_cpu_numbers() {
  std::vector<int> numbers;
#if defined(__linux__)
  // Machines with more CPUs than the set holds make the call fail: try larger sets.
  for (int cpus = CPU_SETSIZE; numbers.empty() && cpus <= 1 << 20; cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (!set) break;
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, size, set) == 0)
      for (int cpu = 0; cpu < cpus; ++cpu)
        if (CPU_ISSET_S(cpu, size, set)) numbers.push_back(cpu);
    CPU_FREE(set);
  }
#endif
  return numbers;
}

int affinity_cpus() {
  const auto count = static_cast<int>(affinity_cpu_numbers().size());
  return count > 0 ? count : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int allowed_threads() {
  int threads = affinity_cpus();
  const double quota = cpu_quota();
  if (quota < threads) threads = static_cast<int>(quota + 0.999999);
  if (const int wanted = omp_num_threads()) threads = std::min(threads, wanted);
  return std::max(1, threads);
}

std::uint64_t allowed_memory() {
  double bytes = memory_of_machine();
  if (bytes <= 0) return 0;
  for (const std::string& directory : cgroup_directories(""))
    if (const double limit = positive(words_of(directory + "/memory.max"), 0))
      bytes = std::min(bytes, limit);
  for (const std::string& directory : cgroup_directories("memory"))
    if (const double limit = positive(words_of(directory + "/memory.limit_in_bytes"), 0))
      bytes = std::min(bytes, limit);
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace tensor_ops
