// The devices, and the reason why there may be none.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "declaration/shared.h"
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

  // The reason, with the device that it is about.
  std::string full_reason() const;
};

// All devices, usable or not; makes no context. The first call starts the driver. Throws
// UnavailableError where there is none, this process is a forked child of one that used CUDA, or
// the driver does not work.
TENSOR_OPS_SHARED const std::vector<Device>& devices();

// Why devices() would throw; empty where it would not.
TENSOR_OPS_SHARED std::string unavailable_reason();

// The facts of a device that can be used. Throws UnavailableError, or ValueError for an index that
// is out of range.
TENSOR_OPS_SHARED const DeviceFacts& usable_device(int index);

// The device of host arrays: what the environment variable says, else (null, or empty) the current
// one. Throws as usable_device() does.
TENSOR_OPS_SHARED int host_device(const char* variable);

// The place of an address.
enum class Memory {
  kHost,    // pinned or not, or no memory that the driver knows
  kDevice,  // of the device beside it
  kManaged  // of host and devices alike; the device beside it is the one that it was made on
};
struct Residence {
  Memory memory;
  int device;  // of kHost the current one
};

// Throws CudaError, or UnavailableError where there is no device. A null pointer is in kHost.
TENSOR_OPS_SHARED Residence residence_of(const void* data);

// The bytes of a device's memory that nobody has taken. Makes a context. Throws CudaError, or
// UnavailableError in a forked child.
TENSOR_OPS_SHARED std::size_t free_memory(int index);

// Waits for all that the current device was asked to do. Throws CudaError.
TENSOR_OPS_SHARED void synchronize_device();

// The compiled architectures, as in "sm_75 sm_80 compute_120".
TENSOR_OPS_SHARED const char* compiled_architectures();

// 12040; 0 where there is no driver.
TENSOR_OPS_SHARED int driver_version();
TENSOR_OPS_SHARED int runtime_version();
// "12.4"
std::string version_text(int version);

// A fork does not copy the state of CUDA: a child of a process that had used it cannot.
TENSOR_OPS_SHARED bool is_forked_child();

// Makes a device the calling thread's current one for a while. Throws CudaError, or
// UnavailableError in a forked child.
class CurrentDevice {
 public:
  TENSOR_OPS_SHARED explicit CurrentDevice(int index);
  TENSOR_OPS_SHARED ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  // -1: nothing to restore
};

}  // namespace tensor_ops
