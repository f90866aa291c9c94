// Steps of a program on a GPU, each as one cooperative launch.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "declaration/shared.h"
#include "decode/ranks/exchange.h"
#include "decode/serving/executor.h"

namespace tensor_ops::decode {

// Called with the bytes of weights that are uploaded, and of all. May throw.
using Progress = std::function<void(std::size_t, std::size_t)>;

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

// Seconds by the device's clock.
struct StepProfile {
  double whole;
  std::vector<double> nodes;  // by node of the program: what a phase takes is that of its main node
};

class TENSOR_OPS_SHARED Executable final : public Executor {
 public:
  // tensors: of the program, by index. Throws ValueError, MemoryError or Error, before any memory
  // is taken unless the driver refuses it.
  Executable(Program program, const std::vector<TensorBytes>& tensors,
             const CompileOptions& options);
  // The bytes that an executable of this program would take, by what takes them.
  static std::vector<std::pair<const char*, std::size_t>> memory_of(const Program& program,
                                                                    const CompileOptions& options);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable() override;

  void run(std::size_t num_tokens, std::size_t num_selected) override;
  std::vector<std::int32_t> run_steps(const StepsInRow& steps) override;
  std::size_t first_nan(std::size_t num_tokens, std::size_t num_selected,
                        std::size_t slot) override;
  void close() override;
  const Program& program() const override;
  const StepArrays& arrays() const override;
  const std::vector<std::pair<const char*, std::size_t>>& memory() const override;
  // kInt8x2, or kFloat32 without tensor cores.
  ActivationType activations() const override;
  std::size_t num_workers() const override;
  const std::vector<Phase>& phases() const override;
  const char* lost_by_fork() const override;

  // Runs a step as run() does, and measures it.
  StepProfile profile(std::size_t num_tokens, std::size_t num_selected);
  // Bytes per second that the device reads and writes while it copies the weights.
  double read_bandwidth();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensor_ops::decode
