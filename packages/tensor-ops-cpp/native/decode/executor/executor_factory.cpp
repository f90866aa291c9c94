#include "decode/interface/executor_factory.h"

#include <limits>
#include <vector>

#include "decode/executor/executable.h"
#include "threads/threads.h"

namespace tensor_ops::decode {
namespace {

// Up to so many bytes are packed at once: that takes no longer than steps lose that pack little by
// little.
constexpr std::size_t kPackedAtOnce = std::size_t{128} << 20;

std::size_t bytes_of(const std::vector<TensorBytes>& tensors) {
  std::size_t bytes = 0;
  for (const TensorBytes& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

}  // namespace

int most_workers() { return sensible_threads(std::numeric_limits<int>::max()); }

std::unique_ptr<Executor> make_executor(const ExportedModel& model,
                                        const ExecutorOptions& options) {
  const std::size_t threads =
      options.num_workers ? options.num_workers : static_cast<std::size_t>(num_threads());
  const auto activations = options.activations.value_or(ActivationType::kInt8x2);
  const bool packs_in_steps = bytes_of(model.tensors) > kPackedAtOnce;
  return std::make_unique<Executable>(model.program, model.tensors,
                                      CompileOptions{threads, activations, {}, {}, packs_in_steps});
}

}  // namespace tensor_ops::decode
