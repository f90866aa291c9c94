// Limits of a launch, and the handling of a kernel that fails.
#include <algorithm>
#include <map>
#include <mutex>

#include "host.h"
#include "scheduler.h"

namespace emulation {
namespace {

constexpr std::size_t kUsualShared = 48 * 1024;  // that a kernel gets without asking
constexpr std::size_t kReservedShared = 1024;    // of each block, for the driver
constexpr int kMostBlocks = 32;                  // of a multiprocessor

// Limits of kernels that have asked for more than the usual shared memory.
std::map<const void*, std::size_t> shared_limits;

std::size_t shared_limit(const void* kernel) {
  const auto found = shared_limits.find(kernel);
  return found == shared_limits.end() ? kUsualShared : found->second;
}

// How many blocks a multiprocessor has room for; their registers are not known.
int resident_blocks(const void* kernel, int threads, std::size_t shared) {
  if (threads < 1 || threads > 1024 || shared > shared_limit(kernel)) return 0;
  const std::size_t memory = max_shared_memory() + kReservedShared;
  const auto by_memory = static_cast<int>(memory / (shared + kReservedShared));
  const int warps = (threads + 31) / 32;
  return std::min({kMostBlocks, by_memory, kThreadsOfMultiprocessor / 32 / warps});
}

}  // namespace

cudaError_t check_launch(const Grid& grid, const void* kernel) {
  const std::lock_guard guard(lock());
  const dim3 blocks = grid.blocks;
  const unsigned threads = grid.threads.x * grid.threads.y * grid.threads.z;
  const bool has_blocks = blocks.x >= 1 && blocks.x <= 0x7fffffffu && blocks.y >= 1 &&
                          blocks.y <= 65535 && blocks.z >= 1 && blocks.z <= 65535;
  const bool has_clusters = grid.cluster >= 1 && grid.cluster <= 8 && blocks.x % grid.cluster == 0;
  if (threads < 1 || threads > 1024 || !has_blocks || !has_clusters)
    return cudaErrorInvalidConfiguration;
  if (grid.shared_bytes > shared_limit(kernel)) return cudaErrorInvalidValue;
  if (!grid.is_cooperative) return cudaSuccess;
  if (grid.cluster > 1) return cudaErrorNotSupported;
  const int at_once =
      multiprocessors() * resident_blocks(kernel, static_cast<int>(threads), grid.shared_bytes);
  const bool fits = std::uint64_t{blocks.x} * blocks.y * blocks.z <= static_cast<unsigned>(at_once);
  return fits ? cudaSuccess : cudaErrorCooperativeLaunchTooLarge;
}

void note_outcome(const Outcome& outcome) {
  if (outcome.failure.empty()) return;
  kernel_failure() = outcome.failure;
  set_sticky_error(outcome.has_hung ? cudaErrorLaunchTimeout : cudaErrorLaunchFailure);
}

}  // namespace emulation

using namespace emulation;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > max_shared_memory())
    return fail(cudaErrorInvalidValue);
  shared_limits[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, std::size_t shared) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  *blocks = resident_blocks(kernel, threads, shared);
  return cudaSuccess;
}

cudaError_t emulatedSetOrder(int order, unsigned seed) {
  const std::lock_guard guard(lock());
  if (order < 0 || order > static_cast<int>(Order::kWarpBehind)) return cudaErrorInvalidValue;
  choices().order = static_cast<Order>(order);
  choices().random.seed(seed);
  return cudaSuccess;
}

cudaError_t emulatedLeaveOut(int wait) {
  const std::lock_guard guard(lock());
  choices().left_out = wait;
  return cudaSuccess;
}

cudaError_t emulatedForgetFailure() {
  const std::lock_guard guard(lock());
  set_sticky_error(cudaSuccess);
  return cudaSuccess;
}

}  // extern "C"
