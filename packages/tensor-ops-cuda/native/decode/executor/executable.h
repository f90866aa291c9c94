// Steps of a program on a GPU, each as one cooperative launch.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "declaration/shared.h"
#include "decode/ranks/exchange.h"
#include "decode/serving/executor.h"

namespace tensor_ops::decode {

struct CompileOptions {
  int device;                   // index
  std::size_t num_workers = 0;  // blocks; 0: one for each multiprocessor
  Progress progress = {};
  // Whether products are those of tensor cores, else those of CUDA cores in float32.
  bool uses_tensor_cores = true;
  // On which steps run, of the device; by default one of its own. Calls wait for their end.
  std::optional<void*> stream = {};
  // With other ranks: which this is, how many there are, and how they exchange values.
  std::size_t rank = 0, world_size = 1;
  std::shared_ptr<Exchange> exchange = {};
};

// tensors: of the program, by index. Throws ValueError, MemoryError or Error, before any memory is
// taken unless the driver refuses it.
TENSOR_OPS_SHARED std::unique_ptr<Executor> make_executable(Program program,
                                                            const std::vector<TensorBytes>& tensors,
                                                            const CompileOptions& options);
// The bytes that an executable of this program would take.
TENSOR_OPS_SHARED MemorySizes memory_of(const Program& program, const CompileOptions& options);

}  // namespace tensor_ops::decode
