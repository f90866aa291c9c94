#include "launch/device.h"

#include <pthread.h>

#include <atomic>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sstream>

#include "declaration/errors.h"
#include "launch/cuda.h"

namespace tensor_ops {
namespace {

std::atomic<bool> was_used{false}, forked{false};

constexpr char kForked[] =
    "this process was forked after the device was used, and CUDA does not survive a fork; start "
    "children with multiprocessing's \"spawn\" or \"forkserver\", or use CUDA first in the child";

// From here on a child has a driver whose state was not copied.
void note_use() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked = was_used.load(); });
  static_cast<void>(registered);
  was_used = true;
}

int attribute_of(int index, cudaDeviceAttr attribute) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, index));
  return value;
}

// "sm_90" runs on 9.x from 9.0 on, "compute_90" is compiled by the driver for anything from 9.0 on.
bool has_code_for(int major, int minor) {
  std::istringstream compiled(TENSOR_OPS_CUDA_ARCHITECTURES);
  for (std::string each; compiled >> each;) {
    const auto digits = each.find('_');
    if (digits == std::string::npos) continue;
    const int number = std::atoi(each.c_str() + digits + 1);
    const bool is_ptx = each.compare(0, 7, "compute") == 0;
    if (is_ptx ? number <= 10 * major + minor : number / 10 == major && number % 10 <= minor)
      return true;
  }
  return false;
}

std::string reason_against(int index, const DeviceFacts& facts) {
  if (!has_code_for(facts.major, facts.minor))
    return text("tensor_ops_cuda has no code for compute capability ", facts.major, ".",
                facts.minor, "; it was compiled for ", TENSOR_OPS_CUDA_ARCHITECTURES);
  if (!attribute_of(index, cudaDevAttrMemoryPoolsSupported))
    return "the driver gives no stream-ordered memory on this device; update it";
  return {};
}

Device describe(int index) {
  Device device;
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  device.facts = {index, attribute_of(index, cudaDevAttrMultiProcessorCount),
                  attribute_of(index, cudaDevAttrComputeCapabilityMajor),
                  attribute_of(index, cudaDevAttrComputeCapabilityMinor),
                  attribute_of(index, cudaDevAttrClusterLaunch) != 0};
  device.name = properties.name;
  device.memory = properties.totalGlobalMem;
  device.shared_memory =
      static_cast<std::size_t>(attribute_of(index, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  device.reason = reason_against(index, device.facts);
  return device;
}

std::string driver_reason(cudaError_t error) {
  const int driver = driver_version(), runtime = runtime_version();
  if (driver == 0)
    return "there is no NVIDIA driver (libcuda.so.1 was not found); install one from "
           "nvidia.com/drivers, or start the container with its GPUs";
  if (error == cudaErrorInsufficientDriver)
    return text("the NVIDIA driver is too old: it supports CUDA ", version_text(driver),
                ", and tensor_ops_cuda needs ", version_text(runtime / 1000 * 1000),
                "; update the driver");
  if (error == cudaErrorNoDevice)
    return "the driver sees no NVIDIA GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES";
  return text("the NVIDIA driver does not work: ", cudaGetErrorName(error), ", ",
              cudaGetErrorString(error));
}

std::vector<Device> find_devices() {
  note_use();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    throw UnavailableError(driver_reason(error == cudaSuccess ? cudaErrorNoDevice : error));
  }
  std::vector<Device> found;
  for (int index = 0; index < count; ++index) found.push_back(describe(index));
  return found;
}

// Released memory is kept for the next call, up to an eighth of the device.
void keep_released_memory(const Device& device) {
  cudaMemPool_t pool;
  std::uint64_t threshold = 0, wanted = device.memory / 8;
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, device.facts.index));
  CUDA_CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  if (threshold < wanted)
    CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &wanted));
}

// Once for each device, when it is used for the first time.
void prepare(const Device& device) {
  static std::mutex mutex;
  static std::vector<char> is_prepared(devices().size());
  const std::lock_guard lock(mutex);
  char& done = is_prepared[static_cast<std::size_t>(device.facts.index)];
  if (!done) keep_released_memory(device);
  done = true;
}

int chosen_device(const char* value) {
  char* end = nullptr;
  const long index = std::strtol(value, &end, 10);
  const bool is_index = std::isdigit(static_cast<unsigned char>(*value)) && *end == '\0';
  const auto count = devices().size();
  if (is_index && index < static_cast<long>(count)) return static_cast<int>(index);
  throw ValueError(text(kDeviceVariable, " is '", value,
                        "'; it must be the index of a device, from 0 to ", count - 1));
}

}  // namespace

std::string Device::full_reason() const {
  return reason.empty() ? reason : text("cuda:", facts.index, " (", name, "): ", reason);
}

// A failure is no state to keep: the driver may be there the next time.
const std::vector<Device>& devices() {
  static std::mutex mutex;
  static std::atomic<const std::vector<Device>*> found{nullptr};
  if (forked.load(std::memory_order_relaxed)) throw UnavailableError(kForked);
  if (const auto* known = found.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(mutex);
  if (!found.load()) found = new std::vector<Device>(find_devices());
  return *found.load();
}

std::string unavailable_reason() {
  try {
    for (const Device& device : devices())
      if (device.reason.empty()) return {};
    return devices()[0].reason;
  } catch (const std::exception& error) {
    return error.what();
  }
}

const DeviceFacts& usable_device(int index) {
  const std::vector<Device>& all = devices();
  if (index < 0 || index >= static_cast<int>(all.size()))
    throw ValueError(text("there is no device cuda:", index,
                          "; the devices are cuda:0 to cuda:", all.size() - 1));
  const Device& device = all[static_cast<std::size_t>(index)];
  if (!device.reason.empty()) throw UnavailableError(device.full_reason());
  thread_local int prepared = -1;
  if (prepared != index) {
    prepare(device);
    prepared = index;
  }
  return device.facts;
}

int host_device(const char* variable) {
  if (variable && *variable) return chosen_device(variable);
  devices();
  int current = 0;
  CUDA_CHECK(cudaGetDevice(&current));
  return current;
}

Residence residence_of(const void* data) {
  devices();
  int current = 0;
  CUDA_CHECK(cudaGetDevice(&current));
  if (!data) return {Memory::kHost, current};
  cudaPointerAttributes attributes;
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, data));
  if (attributes.type == cudaMemoryTypeDevice) return {Memory::kDevice, attributes.device};
  if (attributes.type == cudaMemoryTypeManaged) return {Memory::kManaged, attributes.device};
  return {Memory::kHost, current};
}

std::size_t free_memory(int index) {
  const CurrentDevice current(index);
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  cudaMemPool_t pool;
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, index));
  std::uint64_t reserved = 0, used = 0;
  CUDA_CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  CUDA_CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  return free + (reserved > used ? static_cast<std::size_t>(reserved - used) : 0);
}

void synchronize_device() { CUDA_CHECK(cudaDeviceSynchronize()); }

const char* compiled_architectures() { return TENSOR_OPS_CUDA_ARCHITECTURES; }

int driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) cudaGetLastError();
  return version;
}

int runtime_version() {
  int version = 0;
  CUDA_CHECK(cudaRuntimeGetVersion(&version));
  return version;
}

std::string version_text(int version) { return text(version / 1000, ".", version % 1000 / 10); }

bool is_forked_child() { return forked; }

CurrentDevice::CurrentDevice(int index) {
  if (is_forked_child()) throw UnavailableError(kForked);
  int current = 0;
  CUDA_CHECK(cudaGetDevice(&current));
  if (current == index) return;
  CUDA_CHECK(cudaSetDevice(index));
  before_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0 && cudaSetDevice(before_) != cudaSuccess) cudaGetLastError();
}

}  // namespace tensor_ops
