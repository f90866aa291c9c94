// Errors, versions and devices.
#include "host.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace emulation {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device = 0;
cudaError_t sticky = cudaSuccess;
int num_multiprocessors = 4;
bool was_used = false, is_forked = false;

struct Device {
  int count;
  int major, minor;
  int driver;  // 0: none
};

Device read_device() {
  Device found{static_cast<int>(setting("TENSOR_OPS_EMULATED_DEVICES", 1)), 9, 0, CUDART_VERSION};
  if (const char* capability = std::getenv("TENSOR_OPS_EMULATED_CAPABILITY"))
    std::sscanf(capability, "%d.%d", &found.major, &found.minor);
  if (const char* driver = std::getenv("TENSOR_OPS_EMULATED_DRIVER"))
    found.driver = std::atoi(driver);
  pthread_atfork(nullptr, nullptr, [] { is_forked = was_used; });
  return found;
}

const Device& the_device() {
  static const Device found = read_device();
  return found;
}

cudaError_t check_device(int index) {
  if (const cudaError_t error = driver_state()) return error;
  return index >= 0 && index < the_device().count ? cudaSuccess : cudaErrorInvalidDevice;
}

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

const ErrorText* text_of(cudaError_t error) {
  for (const ErrorText& each : kErrors)
    if (each.error == error) return &each;
  return nullptr;
}

}  // namespace

std::recursive_mutex& lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

cudaError_t fail(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t sticky_error() { return sticky; }
void set_sticky_error(cudaError_t error) { sticky = error; }

// As the real driver: one that is absent looks like one that is too old.
cudaError_t driver_state() {
  const Device& found = the_device();
  if (is_forked) return cudaErrorInitializationError;
  if (found.driver < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  if (found.count == 0) return cudaErrorNoDevice;
  was_used = true;
  return sticky;
}

std::string& kernel_failure() {
  static std::string text;
  return text;
}

int current_device() { return device; }
int multiprocessors() { return num_multiprocessors; }

std::size_t max_shared_memory() {
  const int capability = 10 * the_device().major + the_device().minor;
  const bool is_small = capability == 86 || capability == 89 || capability >= 120;
  return std::size_t{1024} * (is_small ? 99 : capability >= 90 ? 227 : capability >= 80 ? 163 : 64);
}

long long setting(const char* name, long long default_value) {
  const char* value = std::getenv(name);
  return value && *value ? std::atoll(value) : default_value;
}

}  // namespace emulation

using namespace emulation;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* text = text_of(error);
  return text ? text->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const bool is_of_kernel = error == cudaErrorLaunchTimeout || error == cudaErrorLaunchFailure;
  if (is_of_kernel && !kernel_failure().empty()) return kernel_failure().c_str();
  const ErrorText* text = text_of(error);
  return text ? text->text : "unrecognized error code";
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = the_device().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const cudaError_t error = driver_state()) return fail(error);
  *count = the_device().count;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* index) {
  if (const cudaError_t error = driver_state()) return fail(error);
  *index = device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) {
  if (const cudaError_t error = check_device(index)) return fail(error);
  device = index;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  if (const cudaError_t error = check_device(index)) return fail(error);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 * 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(max_shared_memory());
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = num_multiprocessors;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = kThreadsOfMultiprocessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = the_device().major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = the_device().minor;
      break;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    case cudaDevAttrClusterLaunch:
      *value = the_device().major >= 9;
      break;
    default:
      return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (const cudaError_t error = check_device(index)) return fail(error);
  *properties = {};
  std::strcpy(properties->name, "emulated on the host");
  properties->totalGlobalMem = kUsualMemory;
  properties->major = the_device().major;
  properties->minor = the_device().minor;
  properties->multiProcessorCount = num_multiprocessors;
  return cudaSuccess;
}

cudaError_t emulatedSetMultiprocessors(int count) {
  const std::lock_guard guard(lock());
  num_multiprocessors = count;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (const cudaError_t error = refuse_in_capture()) return fail(error);
  finish_device(device);
  return fail(sticky_error());
}

}  // extern "C"
