#include "memory/cache.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "threads/threads.h"

namespace tensor_ops {
namespace {

constexpr std::size_t kModest = std::size_t{8} << 20;

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "32768K" in bytes; 0 for anything else.
std::size_t size_of(const std::string& text) {
  char* end = nullptr;
  const unsigned long number = std::strtoul(text.c_str(), &end, 10);
  if (end == text.c_str()) return 0;
  const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
  return std::size_t{number} << shift;
}

struct Cache {
  int level = 0;
  std::size_t bytes = 0;
  std::string shared_by;
};

Cache last_level_cache(int cpu) {
  Cache last;
  for (int index = 0; index < 8; ++index) {
    const std::string directory = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                  "/cache/index" + std::to_string(index) + "/";
    const std::string type = line_of(directory + "type");
    if (type.empty()) break;
    const int level = std::atoi(line_of(directory + "level").c_str());
    const std::size_t bytes = size_of(line_of(directory + "size"));
    if (type != "Instruction" && level > last.level && bytes > 0)
      last = {level, bytes, line_of(directory + "shared_cpu_list")};
  }
  return last;
}

std::size_t measured_cache_size() {
  std::map<std::string, std::size_t> caches;
  for (int cpu : affinity_cpu_numbers()) {
    const Cache last = last_level_cache(cpu);
    if (last.bytes) caches[last.shared_by] = last.bytes;
  }
  std::size_t sum = 0;
  for (const auto& [shared_by, bytes] : caches) sum += bytes;
  return sum ? sum : kModest;
}

std::atomic<std::size_t> threshold_set{0};

}  // namespace

std::size_t cache_size() {
  static const std::size_t measured = measured_cache_size();
  return measured;
}

std::size_t streaming_threshold() {
  const std::size_t set = threshold_set.load(std::memory_order_relaxed);
  return set ? set : cache_size();
}

void set_streaming_threshold(std::size_t bytes) {
  threshold_set.store(bytes, std::memory_order_relaxed);
}

}  // namespace tensor_ops
