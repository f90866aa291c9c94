#include "decode/executor/runnable.h"

#include <string>

#include "declaration/errors.h"
#include "decode/executor/lowering.h"
#include "decode/program/activation_names.h"
#include "decode/steps.h"
#include "launch/cuda.h"
#include "launch/device.h"

namespace tensor_ops::decode {
namespace {

std::size_t shared_memory_of(int device) {
  return devices()[static_cast<std::size_t>(device)].shared_memory;
}

std::string device_reason(int device) {
  const DeviceFacts& facts = usable_device(device);
  if (facts.major < 8)
    return text(
        "programs need compute capability 8.0, for asynchronous copies and products of 8-bit "
        "integers; cuda:",
        device, " has ", facts.major, ".", facts.minor);
  if (shared_memory_of(device) < shared_bytes(3))
    return text("programs need ", shared_bytes(3),
                " bytes of shared memory in a block; cuda:", device, " has ",
                shared_memory_of(device));
  return {};
}

}  // namespace

int slots_for(int device) { return shared_memory_of(device) >= shared_bytes(4) ? 4 : 3; }

std::size_t most_blocks(int device) {
  int multiprocessors = 0;  // those that this process may use
  CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                                    usable_device(device).index));
  return static_cast<std::size_t>(multiprocessors);
}

bool are_for_tensor_cores(ActivationType type) {
  if (type == ActivationType::kInt8x2) return true;
  if (type == ActivationType::kFloat32) return false;
  throw ValueError(text("activations is '", activation_name(type),
                        "', and the executor of cuda has 'int8x2', by tensor cores, and 'float32'; "
                        "leave it out, or choose another backend"));
}

void require_runnable(const Program& program, int device) {
  if (const std::string reason = device_reason(device); !reason.empty()) throw Error(reason);
  if (program.has_draft())
    throw Error("the executor of cuda runs no draft steps; leave num_speculative_tokens out");
  lower(program);
}

}  // namespace tensor_ops::decode
