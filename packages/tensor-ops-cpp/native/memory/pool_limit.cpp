#include "memory/pool_limit.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include "declaration/errors.h"
#include "threads/threads.h"

namespace tensor_ops {
namespace {

constexpr char kVariable[] = "TENSOR_OPS_CPP_POOL_LIMIT";

// Many processes of one program may share the machine; and no working set of results is larger than
// 4 GiB without its work taking far longer than fresh memory does.
std::uint64_t default_limit() {
  return std::min<std::uint64_t>(allowed_memory() / 16, std::uint64_t{4} << 30);
}

// The power of two of a unit, -1 for an unknown one: K, M, G and T, with or without "iB".
int binary_exponent(const std::string& unit) {
  if (unit.empty()) return 0;
  const std::size_t place = std::string("KMGT").find(unit[0]);
  const bool ends_well = unit.size() == 1 || unit.compare(1, std::string::npos, "iB") == 0;
  return place != std::string::npos && ends_well ? 10 * (static_cast<int>(place) + 1) : -1;
}

// Saturates. Returns false unless the setting is a number of bytes.
bool read_bytes(const char* setting, std::uint64_t& bytes) {
  if (*setting < '0' || *setting > '9') return false;
  errno = 0;
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(setting, &end, 10);
  const int exponent = binary_exponent(end);
  if (exponent < 0) return false;
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  bytes = errno == ERANGE || number > most >> exponent ? most : number << exponent;
  return true;
}

PoolLimit choose_limit() {
  const char* setting = std::getenv(kVariable);
  if (!setting || !*setting) return {default_limit(), {}};
  std::uint64_t bytes = 0;
  if (read_bytes(setting, bytes)) return {bytes, {}};
  const std::uint64_t instead = default_limit();
  return {
      instead,
      text(kVariable, " is '", setting,
           "', which is not a number of bytes such as 0, 500000000, 512M or 2GiB; the default, ",
           instead, ", holds")};
}

}  // namespace

const PoolLimit& first_pool_limit() {
  static const PoolLimit limit = choose_limit();
  return limit;
}

}  // namespace tensor_ops
