// Launches of decode steps: what the host gives them, and what they leave.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "decode/executor/device_program.h"
#include "decode/executor/pinned_memory.h"
#include "decode/program/step.h"

namespace tensor_ops::decode {

// The most steps of one launch.
constexpr std::size_t kMostStepsOfLaunch = 64;

// Results that the kernel leaves for the host.
struct StepOutputs {
  std::int32_t num_done;
  std::int32_t chosen[kMostStepsOfLaunch * kMostTokens];
};

// The tokens of one launch.
struct Group {
  std::size_t first, tokens;             // of the step
  std::size_t first_selected, selected;  // of the selected ones
};

using EndTokens = std::vector<std::vector<std::int32_t>>;

class StepLauncher {
 public:
  // On the current device.
  StepLauncher(const Program& program, const DeviceProgram& on_device, const StepGrid& grid,
               cudaStream_t stream);

  // Gives the device the tokens of a group, and its end tokens if it runs steps in a row.
  void upload(const Step& step, const Group& group, const EndTokens& ends = {});

  struct Range {
    std::size_t begin, end;  // phases
    std::size_t num_steps, num_chosen;
    bool is_timed;
  };
  // Runs phases of the group that was uploaded last, and waits for their end. Throws StepFailure.
  void launch(const Group& group, const Range& range);

  StepOutputs& outputs() const { return *outputs_.at<StepOutputs>(0); }

 private:
  std::string hung_blocks(std::size_t first_phase) const;

  const Program& program_;
  const DeviceProgram& on_device_;
  const StepGrid grid_;
  const cudaStream_t stream_;
  PinnedMemory outputs_, inputs_;
};

}  // namespace tensor_ops::decode
