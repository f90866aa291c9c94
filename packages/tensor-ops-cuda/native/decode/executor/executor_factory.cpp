#include <cstdlib>

#include "declaration/errors.h"
#include "decode/executor/executable.h"
#include "decode/executor/runnable.h"
#include "decode/interface/decode_interface.h"
#include "launch/device.h"

namespace tensor_ops::decode {
namespace {

// That of host arrays.
int device_of_models() {
  try {
    const int device = host_device(std::getenv(kDeviceVariable));
    return usable_device(device).index;
  } catch (const UnavailableError& error) {
    throw UnavailableError(text("open: tensor_ops_cuda is unavailable: ", error.what()));
  }
}

}  // namespace

int most_workers() { return static_cast<int>(most_blocks(device_of_models())); }

std::unique_ptr<Executor> make_executor(const ExportedModel& model,
                                        const ExecutorOptions& options) {
  const int device = device_of_models();
  CompileOptions compile{device, options.num_workers};
  if (options.activations) compile.uses_tensor_cores = are_for_tensor_cores(*options.activations);
  return make_executable(model.program, model.tensors, compile);
}

}  // namespace tensor_ops::decode
