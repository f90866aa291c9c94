// Device memory, pinned host memory, and copies.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "host.h"

namespace emulation {
namespace {

struct Allocation {
  std::size_t bytes;
  int device;
  bool is_released = false;
};

// Never destroyed: a program's own static variables may hold memory to its end.
using Allocations = std::map<const char*, Allocation>;
auto& device_memory = *new Allocations;
auto& pinned_memory = *new Allocations;
std::size_t device_bytes[kMaxDevices], pinned_bytes;
std::uint64_t release_threshold[kMaxDevices];
std::size_t device_limit = kUsualMemory, pinned_limit = kUsualMemory;

// Released memory stays readable for a while, so that kernels which read it find NaN and do not
// crash.
constexpr std::size_t kQuarantine = 64 << 20;
auto& quarantine = *new std::deque<const char*>;
std::size_t quarantined;

void fill_with_nan(void* data, std::size_t bytes) { std::memset(data, 0xff, bytes); }

Allocations::iterator containing(Allocations& memory, const void* data) {
  auto found = memory.upper_bound(static_cast<const char*>(data));
  if (found == memory.begin()) return memory.end();
  --found;
  const bool is_in = static_cast<const char*>(data) < found->first + found->second.bytes;
  return is_in ? found : memory.end();
}

bool is_range(Allocations& memory, const void* data, std::size_t bytes) {
  const auto found = containing(memory, data);
  if (found == memory.end() || found->second.is_released) return false;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(data) - found->first);
  return bytes <= found->second.bytes - offset;
}

cudaError_t allocate(void** data, std::size_t bytes, int device) {
  *data = nullptr;
  if (bytes == 0) return cudaErrorInvalidValue;
  if (bytes > device_limit || device_bytes[device] > device_limit - bytes)
    return cudaErrorMemoryAllocation;
  // No byte more, so that AddressSanitizer sees what goes beyond.
  if (posix_memalign(data, 512, bytes) != 0) return cudaErrorMemoryAllocation;
  fill_with_nan(*data, bytes);
  device_bytes[device] += bytes;
  device_memory[static_cast<const char*>(*data)] = {bytes, device};
  return cudaSuccess;
}

cudaError_t release(const void* data) {
  const auto found = device_memory.find(static_cast<const char*>(data));
  if (found == device_memory.end() || found->second.is_released)
    return cudaErrorInvalidDevicePointer;
  found->second.is_released = true;
  device_bytes[found->second.device] -= found->second.bytes;
  fill_with_nan(const_cast<void*>(data), found->second.bytes);
  quarantine.push_back(found->first);
  quarantined += found->second.bytes;
  while (quarantined > kQuarantine && quarantine.size() > 1) {
    const auto oldest = device_memory.find(quarantine.front());
    quarantined -= oldest->second.bytes;
    std::free(const_cast<char*>(oldest->first));
    device_memory.erase(oldest);
    quarantine.pop_front();
  }
  return cudaSuccess;
}

// Memory of the device must be the device's; other memory is the caller's own affair.
bool is_copy_allowed(const void* data, std::size_t bytes, bool must_be_device) {
  if (must_be_device || touches_device_memory(data)) return is_device_range(data, bytes);
  return data != nullptr;
}

bool are_ends_allowed(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault &&
      ((!to_device && touches_device_memory(to)) || (!from_device && touches_device_memory(from))))
    return false;
  return is_copy_allowed(to, bytes, to_device) && is_copy_allowed(from, bytes, from_device);
}

// Pageable memory is read, or written, before the call returns.
bool is_pageable(const void* data) {
  return !touches_device_memory(data) && !is_pinned_range(data, 1);
}

}  // namespace

bool is_device_range(const void* data, std::size_t bytes) {
  return is_range(device_memory, data, bytes);
}
bool is_pinned_range(const void* data, std::size_t bytes) {
  return is_range(pinned_memory, data, bytes);
}
bool touches_device_memory(const void* data) {
  return containing(device_memory, data) != device_memory.end();
}

}  // namespace emulation

using namespace emulation;

extern "C" {

cudaError_t emulatedSetMemory(std::size_t device, std::size_t pinned) {
  const std::lock_guard guard(lock());
  device_limit = device;
  pinned_limit = pinned;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  *total = device_limit;
  const std::size_t used = device_bytes[current_device()];
  *free = *total > used ? *total - used : 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (const cudaError_t error = refuse_in_capture()) return fail(error);
  return fail(allocate(data, bytes, current_device()));
}

cudaError_t cudaFree(void* data) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (!data) return cudaSuccess;
  if (const cudaError_t error = refuse_in_capture()) return fail(error);
  finish_device(current_device());
  return fail(release(data));
}

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (!is_known(stream)) return fail(cudaErrorInvalidResourceHandle);
  const int device = device_of(stream);
  cudaError_t error = allocate(data, bytes, device);
  if (error == cudaErrorMemoryAllocation && !is_capturing(stream)) {
    // Memory whose release is enqueued becomes free when the device has done its work.
    finish_device(device);
    error = allocate(data, bytes, device);
  }
  return fail(error);
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (!is_known(stream)) return fail(cudaErrorInvalidResourceHandle);
  if (!is_device_range(data, 1)) return fail(cudaErrorInvalidValue);
  // A graph keeps its memory for the next time it is launched.
  if (is_capturing(stream)) return cudaSuccess;
  return fail(push(stream, [data] {
    if (const cudaError_t error = release(data)) set_sticky_error(error);
  }));
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  const std::lock_guard guard(lock());
  *data = nullptr;
  if (const cudaError_t error = driver_state()) return fail(error);
  if (const cudaError_t error = refuse_in_capture()) return fail(error);
  if (bytes > pinned_limit || pinned_bytes > pinned_limit - bytes)
    return fail(cudaErrorMemoryAllocation);
  if (posix_memalign(data, 4096, bytes) != 0) return fail(cudaErrorMemoryAllocation);
  pinned_bytes += bytes;
  pinned_memory[static_cast<const char*>(*data)] = {bytes, current_device()};
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (!data) return cudaSuccess;
  const auto found = pinned_memory.find(static_cast<const char*>(data));
  if (found == pinned_memory.end()) return fail(cudaErrorInvalidValue);
  for (int device = 0; device < kMaxDevices; ++device) finish_device(device);
  pinned_bytes -= found->second.bytes;
  fill_with_nan(data, found->second.bytes);
  pinned_memory.erase(found);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  void* address = const_cast<void*>(data);
  *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, address};
  if (is_pinned_range(data, 1))
    *attributes = {cudaMemoryTypeHost, containing(pinned_memory, data)->second.device, address,
                   address};
  else if (is_device_range(data, 1))
    *attributes = {cudaMemoryTypeDevice, containing(device_memory, data)->second.device, address,
                   nullptr};
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (const cudaError_t error = driver_state()) return fail(error);
  *pool = reinterpret_cast<cudaMemPool_t>(&release_threshold[device]);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute != cudaMemPoolAttrReleaseThreshold) return fail(cudaErrorInvalidValue);
  *reinterpret_cast<std::uint64_t*>(pool) = *static_cast<std::uint64_t*>(value);
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::lock_guard guard(lock());
  auto* threshold = reinterpret_cast<std::uint64_t*>(pool);
  *static_cast<std::uint64_t*>(value) = attribute == cudaMemPoolAttrReleaseThreshold
                                            ? *threshold
                                            : device_bytes[threshold - release_threshold];
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (!is_known(stream)) return fail(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (!are_ends_allowed(to, from, bytes, kind)) return fail(cudaErrorInvalidValue);
  const bool must_wait = is_pageable(to) || is_pageable(from);
  if (must_wait && is_capturing(stream)) return fail(refuse_in_capture());
  const cudaError_t error = push(stream, [=] {
    if (are_ends_allowed(to, from, bytes, kind))
      std::memcpy(to, from, bytes);
    else
      set_sticky_error(cudaErrorIllegalAddress);
  });
  if (error || !must_wait) return fail(error);
  return fail(run_until(end_of(stream)));
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = refuse_in_capture()) return fail(error);
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  return fail(run_until(end_of(nullptr)));
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (!is_known(stream)) return fail(cudaErrorInvalidResourceHandle);
  if (!is_device_range(data, bytes)) return fail(cudaErrorInvalidValue);
  return fail(push(stream, [=] {
    if (is_device_range(data, bytes))
      std::memset(data, value, bytes);
    else
      set_sticky_error(cudaErrorIllegalAddress);
  }));
}

}  // extern "C"
