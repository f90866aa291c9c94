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
  const auto activations = options.activations.value_or(ActivationType::kInt8x2);
  return std::make_unique<Executable>(model.program, model.tensors,
                                      CompileOptions{threads, activations, {}, {}, true});
}

}  // namespace tensor_ops::decode
