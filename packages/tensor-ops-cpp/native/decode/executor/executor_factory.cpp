#include "decode/interface/executor_factory.h"

#include <limits>

#include "decode/executor/executable.h"
#include "threads/threads.h"

namespace tensor_ops::decode {

int most_workers() { return sensible_threads(std::numeric_limits<int>::max()); }

std::unique_ptr<Executor> make_executor(const ExportedModel& model,
                                        const ExecutorOptions& options) {
  const std::size_t threads =
      options.num_workers ? options.num_workers : static_cast<std::size_t>(num_threads());
  const auto progress = [&](std::size_t, std::size_t) {
    if (options.has_read) options.has_read();
  };
  return std::make_unique<Executable>(
      model.program, model.tensors,
      CompileOptions{threads, options.activations.value_or(ActivationType::kInt8x2), progress, {}});
}

}  // namespace tensor_ops::decode
