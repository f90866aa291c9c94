#include "decode/executor/executable.h"

#include <algorithm>
#include <utility>

#include "declaration/errors.h"
#include "decode/executor/cut_nodes.h"
#include "decode/executor/device_program.h"
#include "decode/executor/runnable.h"
#include "decode/executor/step_launcher.h"
#include "decode/program/sizes.h"
#include "decode/ranks/exchange_sizes.h"
#include "decode/serving/draw.h"
#include "launch/cuda.h"
#include "launch/device.h"
#include "launch/streams.h"

namespace tensor_ops::decode {
namespace {

int blocks_of(const CompileOptions& options) {
  const std::size_t most = most_blocks(options.device);
  if (options.num_workers > most)
    throw ValueError(text("num_workers must be from 1 to ", most,
                          ", a block for each multiprocessor, got ", options.num_workers));
  return static_cast<int>(options.num_workers ? options.num_workers : most);
}

MemorySizes memory_with(const Program& program, const DeviceProgram& on_device,
                        const StepArrays& arrays, std::size_t ranks) {
  MemorySizes sizes = on_device.memory();
  sizes.emplace_back("arrays", arrays.bytes());
  if (ranks > 1)
    sizes.emplace_back("exchange", exchange_bytes(ranks, most_sent(program, ranks, kMostTokens)));
  return sizes;
}

class Executable final : public Executor {
 public:
  Executable(Program program, const std::vector<TensorBytes>& tensors,
             const CompileOptions& options)
      : Executor(std::move(program)),
        device_(options.device),
        grid_{blocks_of(options), slots_for(options.device), options.uses_tensor_cores},
        on_device_(program_, grid_.blocks) {
    require_tensors(program_, tensors, std::vector<bool>(program_.tensors.size(), true));
    check_ranks(program_, options.rank, options.world_size);
    memory_ = memory_with(program_, on_device_, arrays_, options.world_size);
    phases_ = on_device_.lowered().fused;
    const CurrentDevice current(device_);
    require_memory();
    stream_ = options.stream ? static_cast<cudaStream_t>(*options.stream) : own_stream(device_);
    arrays_.allocate();
    launcher_ = std::make_unique<StepLauncher>(program_, on_device_, grid_, stream_);
    cut_nodes_ = std::make_unique<CutNodes>(program_, on_device_, options.exchange, stream_);
    on_device_.load(tensors, options.progress, stream_);
  }

  // kInt8x2, or kFloat32 without tensor cores.
  ActivationType activations() const override {
    return grid_.uses_tensor_cores ? ActivationType::kInt8x2 : ActivationType::kFloat32;
  }
  std::size_t num_workers() const override { return static_cast<std::size_t>(grid_.blocks); }
  const char* lost_by_fork() const override { return is_forked_child() ? "device" : nullptr; }

  void take_step(const Step& step) override {
    const CurrentDevice current(device_);
    step_ = step;
    for_each_group([&](const Group& group) {
      for_each_launch(group, [&](std::size_t begin, std::size_t end) {
        const bool is_last = end == on_device_.lowered().phases.size();
        const bool chooses = is_last && !on_device_.lowered().chooses_on_host;
        launcher_->launch(group, {begin, end, 1, chooses ? chosen_of(group) : 0, false});
      });
      std::int32_t* const chosen = launcher_->outputs().chosen;
      draw_tokens(group, chosen);
      download_outputs(group, chosen);
    });
  }

  // In one launch.
  bool take_steps(const Step& step, const StepsInRow& steps, std::size_t most,
                  std::vector<std::int32_t>& all) override {
    step_ = step;
    if (!runs_in_row(steps)) return false;
    const CurrentDevice current(device_);
    const std::size_t count = steps.num_tokens;
    const Group group{0, count, 0, count};
    launcher_->upload(step_, group, steps.end_tokens);
    launcher_->launch(group, {0, on_device_.lowered().phases.size(),
                              std::min(most, kMostStepsOfLaunch), count, false});
    const std::int32_t* const chosen = launcher_->outputs().chosen;
    const auto done = static_cast<std::size_t>(launcher_->outputs().num_done);
    all.insert(all.end(), chosen, chosen + done * count);
    download_outputs(group, chosen + (done - 1) * count);
    return true;
  }

  std::size_t first_nan(const Step& step, std::size_t slot) override {
    const CurrentDevice current(device_);
    step_ = step;
    std::size_t found = program_.nodes.size();
    for_each_group([&](const Group& group) {
      for_each_launch(group, [&](std::size_t begin, std::size_t end) {
        for (std::size_t p = begin; p < end; ++p) {
          launcher_->launch(group, {p, p + 1, 1, 0, false});
          const auto node = static_cast<std::size_t>(on_device_.lowered().phases[p].phase.node);
          if (node < found && has_nan(group, p, slot)) found = node;
        }
      });
    });
    return found;
  }

  // By the device's clock. The blocks work on a phase together, and wait for nothing.
  StepProfile profile(const Step& step) override {
    const CurrentDevice current(device_);
    step_ = step;
    const std::vector<double> none(program_.nodes.size());
    StepProfile profile{0, 1, none, none};
    for_each_group([&](const Group& group) {
      for_each_launch(group, [&](std::size_t begin, std::size_t end) {
        launcher_->launch(group, {begin, end, 1, 0, true});
        std::vector<unsigned long long> times(end - begin + 1);
        download(on_device_.times(), times.data(), times.size() * sizeof times[0], stream_);
        profile.whole += 1e-9 * static_cast<double>(times.back() - times[0]);
        for (std::size_t p = begin; p < end; ++p)
          profile.work[static_cast<std::size_t>(on_device_.lowered().phases[p].phase.node)] +=
              1e-9 * static_cast<double>(times[p - begin + 1] - times[p - begin]);
      });
    });
    return profile;
  }

  // Bandwidth of reading and writing, while the device copies the weights.
  double read_bandwidth() override {
    const CurrentDevice current(device_);
    return on_device_.copy_bandwidth(stream_);
  }

  void release() override {
    if (is_forked_child()) return;
    launcher_.reset();
    cut_nodes_.reset();
    on_device_.unload();
    // Memory is free once the device has come to its release. A device that fails has none left.
    if (cudaStreamSynchronize(stream_) != cudaSuccess) cudaGetLastError();
  }

 private:
  void require_memory() const {
    const std::size_t free = free_memory(device_),
                      whole = devices()[static_cast<std::size_t>(device_)].memory;
    std::size_t total = 0;
    for (const auto& [what, bytes] : on_device_.memory()) add_size("program", total, bytes);
    if (total <= free) return;
    throw MemoryError(
        text("compile_program: the program needs ", total, " bytes of cuda:", device_, " (",
             joined(on_device_.memory(),
                    [](const auto& each) { return text(each.first, " ", each.second); }),
             "), and ", free, " of ", whole, " are free"));
  }

  // The tokens of a step run in groups, in order, since later tokens of a sequence attend to
  // earlier ones. Returns the group after `last`; a group without tokens is the end.
  Group group_after(const Group& last) const {
    const std::size_t first = last.first + last.tokens;
    Group group{first, std::min(step_.num_tokens - first, grid_.most_tokens()),
                last.first_selected + last.selected, 0};
    while (group.first_selected + group.selected < step_.num_selected &&
           static_cast<std::size_t>(step_.selected[group.first_selected + group.selected]) <
               first + group.tokens)
      ++group.selected;
    return group;
  }
  template <class Visit>
  void for_each_group(Visit visit) const {
    for (Group group = group_after({}); group.tokens > 0; group = group_after(group)) visit(group);
  }

  const Node* chooser() const {
    const std::size_t node = on_device_.lowered().chooser;
    return node == kAbsent ? nullptr : &program_.nodes[node];
  }
  bool chooses_selected() const {
    return program_.values[chooser()->outputs[0]].rows == Rows::kSelected;
  }
  std::size_t chosen_of(const Group& group) const {
    return !chooser() ? 0 : chooses_selected() ? group.selected : group.tokens;
  }

  std::size_t end_of_phases(const Group& group) const {
    return group.selected > 0 ? on_device_.lowered().phases.size()
                              : on_device_.phases_without_selected();
  }

  // Copies the outputs of the program for a group of tokens to the arrays of the step.
  void download_outputs(const Group& group, const std::int32_t* chosen) {
    for (std::size_t output : program_.outputs) {
      const Value& value = program_.values[output];
      const bool is_selected = value.rows == Rows::kSelected;
      const std::size_t rows = is_selected ? group.selected : group.tokens;
      const std::size_t first = is_selected ? group.first_selected : group.first;
      unsigned char* const to = arrays_.value(value.name) + first * value.columns * 4;
      if (rows == 0) continue;
      if (value.is_int32)
        std::copy_n(chosen, rows, reinterpret_cast<std::int32_t*>(to));
      else
        download(on_device_.value(output), to, rows * value.columns * sizeof(float), stream_);
    }
  }

  bool needs_draw(std::size_t slot) const {
    return step_.temperature[slot] > 0 || step_.num_edits[slot] > 0;
  }
  std::size_t token_of(const Group& group, std::size_t row) const {
    return chooses_selected() ? static_cast<std::size_t>(step_.selected[group.first_selected + row])
                              : group.first + row;
  }
  bool draws() const {
    if (chooser() && on_device_.lowered().chooses_on_host) return true;
    return chooser() && chooser()->kind->draws() &&
           std::any_of(step_.slots, step_.slots + step_.num_tokens, [&](std::int32_t slot) {
             return needs_draw(static_cast<std::size_t>(slot));
           });
  }

  // Tokens that the device does not choose: drawn, from edited logits, or from those of all ranks.
  void draw_tokens(const Group& group, std::int32_t* chosen) {
    if (!draws()) return;
    const std::size_t logits = chooser()->inputs[0], n = program_.values[logits].columns;
    row_.resize(n);
    scratch_.resize(draw_scratch(n) + 64);
    auto* const aligned_scratch =
        scratch_.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch_.data()) % 64);
    for (std::size_t row = 0; row < chosen_of(group); ++row) {
      const std::size_t token = token_of(group, row);
      if (!on_device_.lowered().chooses_on_host &&
          !needs_draw(static_cast<std::size_t>(step_.slots[token])))
        continue;
      download(on_device_.value(logits) + row * n, row_.data(), n * sizeof(float), stream_);
      chosen[row] = chooser()->kind->draws() ? sample(step_, row_.data(), n, token, aligned_scratch)
                                             : argmax(row_.data(), n);
    }
  }

  // Gives the device a group, and calls run(begin, end) for the phases of each of its launches.
  // Nodes that exchange values with other ranks run between two launches.
  template <class Run>
  void for_each_launch(const Group& group, Run run) {
    launcher_->upload(step_, group);
    std::size_t begin = 0;
    const std::size_t end = end_of_phases(group);
    for (const Cut& cut : on_device_.lowered().cuts) {
      if (cut.phase > end) break;
      if (begin < cut.phase) run(begin, cut.phase);
      begin = cut.phase;
      const Value& value = program_.values[cut.to];
      const std::size_t rows = value.rows == Rows::kSelected ? group.selected : group.tokens;
      cut_nodes_->run(cut, rows);
    }
    if (begin < end) run(begin, end);
  }

  bool runs_in_row(const StepsInRow& steps) const {
    std::size_t ends = 0;
    for (const auto& each : steps.end_tokens) ends += each.size();
    return steps.num_tokens <= grid_.most_tokens() && on_device_.lowered().cuts.empty() &&
           chooser() && !draws() && ends <= kMostEnds &&
           program_.values[chooser()->outputs[0]].name == steps.output;
  }

  // Whether the rows of a slot that a phase has left have NaN.
  bool has_nan(const Group& group, std::size_t phase, std::size_t slot) {
    const bool is_selected = on_device_.phase(phase).is_selected;
    const std::size_t rows = is_selected ? group.selected : group.tokens;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t token =
          is_selected ? static_cast<std::size_t>(step_.selected[group.first_selected + row])
                      : group.first + row;
      if (static_cast<std::size_t>(step_.slots[token]) == slot &&
          has_left_nan(on_device_, phase, row, step_, token, stream_))
        return true;
    }
    return false;
  }

  const int device_;
  const StepGrid grid_;
  DeviceProgram on_device_;
  Step step_{};
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<StepLauncher> launcher_;
  std::unique_ptr<CutNodes> cut_nodes_;
  std::vector<float> row_;
  std::vector<unsigned char> scratch_;
};

}  // namespace

std::unique_ptr<Executor> make_executable(Program program, const std::vector<TensorBytes>& tensors,
                                          const CompileOptions& options) {
  require_runnable(program, options.device);
  return std::make_unique<Executable>(std::move(program), tensors, options);
}

MemorySizes memory_of(const Program& program, const CompileOptions& options) {
  require_runnable(program, options.device);
  try {
    return memory_with(program, DeviceProgram(program, blocks_of(options)), StepArrays(program),
                       options.world_size);
  } catch (const SizeError& error) {
    throw MemoryError(error.what());
  }
}

}  // namespace tensor_ops::decode
