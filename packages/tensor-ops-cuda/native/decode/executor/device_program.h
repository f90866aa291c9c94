// A program in the memory of a device: packed weights, caches, and what its phases read and write.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decode/executor/lowering.h"
#include "decode/executor/packing.h"
#include "decode/program/step.h"
#include "decode/program/value_plan.h"
#include "decode/serving/executor.h"
#include "decode/steps.h"
#include "launch/memory.h"

namespace tensor_ops::decode {

constexpr std::size_t kMostEnds = 1024;  // end tokens of all requests of a step

// Inputs that the host gives to a launch, as int32, in one piece of memory.
struct StepInputs {
  std::int32_t tokens[kMostTokens], positions[kMostTokens], slots[kMostTokens],
      selected[kMostTokens];
  std::int32_t ends_begin[kMostTokens + 8], ends[kMostEnds];
};

// Results of a phase, as rows of float32.
struct PhaseRows {
  const float* first;
  std::size_t columns;
};

class DeviceProgram {
 public:
  // Plans where everything lies, and takes no memory of the device. Throws Error, with the reason,
  // where the kernel cannot run the program, and SizeError.
  DeviceProgram(const Program& program, int blocks);

  std::vector<std::pair<const char*, std::size_t>> memory() const;
  // Takes the memory on the current device, and uploads all tensors. Throws CudaError,
  // CudaMemoryError and what `progress` throws.
  void load(const std::vector<TensorBytes>& tensors, const Progress& progress, cudaStream_t stream);

  // Gives the memory back.
  void unload() {
    weights_.reset();
    caches_.reset();
    work_.reset();
  }

  // Bytes per second that the device reads and writes while it copies the weights.
  double copy_bandwidth(cudaStream_t stream) const;

  const LoweredProgram& lowered() const { return lowered_; }
  // The phases from `begin` up to `end`, with all that does not change from launch to launch.
  Steps steps(std::size_t begin, std::size_t end) const;
  const DevicePhase& phase(std::size_t index) const { return pointed_[index]; }
  // How many of the phases run where no token is selected.
  std::size_t phases_without_selected() const;
  // Where a value is that is an output of the program.
  float* value(std::size_t index) const;
  // Copies rows of a value to another one. Throws CudaError.
  void copy(std::size_t from, std::size_t to, std::size_t rows, cudaStream_t stream) const;
  PhaseRows rows_of(std::size_t phase) const;
  // The rows that a value has in a group of tokens, at most.
  std::size_t rows_of_value(std::size_t index) const;
  StepInputs* inputs() const { return at<StepInputs>(inputs_); }
  std::int32_t* page_table() const { return at<std::int32_t>(page_table_); }
  unsigned long long* times() const { return at<unsigned long long>(times_); }

 private:
  struct Matrix {
    const LoweredPhase* phase;  // one of those that read it
    PanelPlan plan;
    std::size_t offset, first_panel;
  };

  ValuePlan value_plan() const;
  void plan_matrices();
  void plan_parameters();
  void plan_values_and_scratch(int blocks);
  void point_phases();
  void upload_matrix(const Matrix& matrix, const std::vector<TensorBytes>& tensors,
                     const Progress& progress, std::size_t& done, cudaStream_t stream) const;
  void upload_parameters(const std::vector<TensorBytes>& tensors, cudaStream_t stream) const;
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(work_.get()) + offset);
  }

  const Program& program_;
  LoweredProgram lowered_;
  std::vector<Matrix> matrices_;
  std::vector<std::size_t> matrix_of_;             // by phase; kAbsent
  std::map<std::size_t, std::size_t> parameters_;  // by tensor: the offset
  std::vector<std::size_t> cache_;                 // by cache: the offset of its keys
  std::vector<std::size_t> value_;                 // by value
  std::size_t weight_bytes_ = 0, parameter_bytes_ = 0, cache_bytes_ = 0, work_bytes_ = 0;
  // Offsets in the memory of a step.
  std::size_t queries_ = 0, parts_ = 0, sums_ = 0, prepared_ = 0, best_ = 0, barrier_ = 0,
              inputs_ = 0, page_table_ = 0, times_ = 0, phases_ = 0, panels_ = 0;
  std::vector<DevicePhase> pointed_;
  std::vector<Panel> panel_list_;
  DeviceMemory weights_, caches_, work_;
};

// Whether what a phase has left for a token of a step, in the row of a launch, has NaN: queries,
// the key and the value, or any other row.
bool has_left_nan(const DeviceProgram& program, std::size_t phase, std::size_t row,
                  const Step& step, std::size_t token, cudaStream_t stream);

}  // namespace tensor_ops::decode
