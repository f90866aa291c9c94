#include "decode/executor/step_launcher.h"

#include "declaration/errors.h"
#include "launch/cuda.h"

namespace tensor_ops::decode {
namespace {

// How long a block waits for the others before it gives up. A phase takes milliseconds; a device
// that other processes use as well may stop a grid for as long as a slice of time.
constexpr unsigned long long kMostSeconds = 20;

}  // namespace

StepLauncher::StepLauncher(const Program& program, const DeviceProgram& on_device,
                           const StepGrid& grid, cudaStream_t stream)
    : program_(program),
      on_device_(on_device),
      grid_(grid),
      stream_(stream),
      outputs_(sizeof(StepOutputs) + static_cast<std::size_t>(grid.blocks) * sizeof(BlockState)),
      inputs_(sizeof(StepInputs)) {}

void StepLauncher::upload(const Step& step, const Group& group, const EndTokens& ends) {
  auto& inputs = *inputs_.at<StepInputs>(0);
  for (std::size_t i = 0; i < group.tokens; ++i) {
    inputs.tokens[i] = step.tokens[group.first + i];
    inputs.positions[i] = step.positions[group.first + i];
    inputs.slots[i] = step.slots[group.first + i];
  }
  for (std::size_t j = 0; j < group.selected; ++j)
    inputs.selected[j] =
        step.selected[group.first_selected + j] - static_cast<std::int32_t>(group.first);
  std::int32_t count = 0;
  for (std::size_t i = 0; i < kMostTokens; ++i) {
    inputs.ends_begin[i] = count;
    if (i >= ends.size()) continue;
    for (std::int32_t end : ends[i]) inputs.ends[count++] = end;
  }
  inputs.ends_begin[kMostTokens] = count;
  const std::size_t pages = program_.limits.max_requests * step.pages_per_request;
  const auto send = [this](void* to, const void* from, std::size_t bytes) {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
  };
  send(on_device_.inputs(), &inputs, sizeof inputs);
  send(on_device_.page_table(), step.page_table, pages * sizeof(std::int32_t));
}

void StepLauncher::launch(const Group& group, const Range& range) {
  Steps steps = on_device_.steps(range.begin, range.end);
  steps.num_tokens = static_cast<int>(group.tokens);
  steps.num_selected = static_cast<int>(group.selected);
  steps.num_steps = static_cast<int>(range.num_steps);
  steps.num_chosen = static_cast<int>(range.num_chosen);
  steps.chosen = outputs().chosen;
  steps.num_done = &outputs().num_done;
  steps.nanoseconds = kMostSeconds * 1'000'000'000;
  steps.states = outputs_.at<BlockState>(sizeof(StepOutputs));
  steps.times = range.is_timed ? on_device_.times() : nullptr;
  try {
    launch_steps(steps, grid_, stream_);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
  } catch (const CudaError& error) {
    throw StepFailure(error.what());
  }
  if (const std::string hung = hung_blocks(range.begin); !hung.empty()) throw StepFailure(hung);
}

// Where the blocks stood that have given up; empty where none has.
std::string StepLauncher::hung_blocks(std::size_t first_phase) const {
  constexpr int kMostTold = 4;
  std::string found;
  const auto* const states = outputs_.at<BlockState>(sizeof(StepOutputs));
  for (int b = 0, told = 0; b < grid_.blocks && told < kMostTold; ++b) {
    if (!states[b].gave_up) continue;
    const std::size_t phase = first_phase + static_cast<std::size_t>(states[b].phase);
    const auto node = static_cast<std::size_t>(on_device_.lowered().phases[phase].phase.node);
    found += text(told++ == 0 ? text("blocks waited for others for ", kMostSeconds, " s: ") : "; ",
                  "block ", b, " after ", program_.nodes[node].where(), " in step ", states[b].step,
                  ", with weights on their way up to panel ", states[b].panel);
  }
  return found;
}

}  // namespace tensor_ops::decode
