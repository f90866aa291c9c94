// What devices there are, and why there may be none.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/call.h"

namespace tensor_ops {

// The environment variable that chooses the device of host arrays.
inline constexpr char kDeviceVariable[] = "TENSOR_OPS_CUDA_DEVICE";

struct Device {
  DeviceFacts facts;
  std::string name;
  std::size_t memory;         // bytes
  std::size_t shared_memory;  // bytes that a block can ask for
  std::string reason;         // why it cannot be used; empty where it can
};

// All devices, usable or not; makes no context. The first call starts the driver. Throws
// UnavailableError where there is none, this process is a forked child of one that used CUDA, or
// the driver does not work.
const std::vector<Device>& devices();

// Why devices() would throw; empty where it would not.
std::string unavailable_reason();

// The facts of a device that can be used. Throws UnavailableError, or ValueError for an index that
// is out of range.
const DeviceFacts& usable_device(int index);

// The device of host arrays: what the environment variable says, else (null, or empty) the current
// one. Throws likewise.
int host_device(const char* variable);

// 12040; 0 where there is no driver.
int driver_version();
int runtime_version();
// "12.4"
std::string version_text(int version);

// Whether this process is the child of one that had used CUDA, whose state a fork does not copy.
bool is_forked_child();

// Makes a device the calling thread's current one for a while. Throws CudaError, or
// UnavailableError in a forked child.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  // -1: nothing to restore
};

}  // namespace tensor_ops
