// Whole decode steps as one cooperative kernel. All blocks share the work of each phase, and meet
// at a grid barrier after it, while their rings go on reading weights.
#include "decode/kernels/attention.cuh"
#include "decode/kernels/choice.cuh"
#include "decode/kernels/float_product.cuh"
#include "decode/kernels/prepare.cuh"
#include "decode/kernels/product.cuh"
#include "decode/kernels/results.cuh"
#include "decode/steps.h"
#include "kernels/launch.cuh"

namespace tensor_ops::decode {

template <WeightFormat kFormat>
DEVICE float element_of(const Panel& panel, unsigned row, unsigned column) {
  const ElementPlace place = place_of(kFormat, panel.steps, row, column);
  const unsigned char* const at = panel.data + place.at;
  if (kFormat == WeightFormat::kBFloat16) return real(*reinterpret_cast<const BFloat16*>(at));
  const float scale = real(*reinterpret_cast<const Float16*>(panel.data + place.scale_at));
  const int byte = kFormat == WeightFormat::kQ8_0 ? *at : place.is_upper ? *at & 0xf0 : *at << 4;
  const auto value = static_cast<float>(static_cast<signed char>(byte));
  return scale * (kFormat == WeightFormat::kQ8_0 ? value : value / 16);
}

DEVICE float table_element(const Panel& panel, unsigned row, unsigned column) {
  switch (panel.format) {
    case WeightFormat::kQ8_0:
      return element_of<WeightFormat::kQ8_0>(panel, row, column);
    case WeightFormat::kQ4_0:
      return element_of<WeightFormat::kQ4_0>(panel, row, column);
    default:
      return element_of<WeightFormat::kBFloat16>(panel, row, column);
  }
}

// Rows of a table, in float32: the block's share of all elements.
DEVICE void embed(const Steps& steps, const DevicePhase& phase, const int* tokens) {
  const auto columns = static_cast<unsigned>(phase.columns);
  const unsigned all = static_cast<unsigned>(steps.num_tokens) * columns;
  for (unsigned i = blockIdx.x * kBlockThreads + threadIdx.x; i < all;
       i += gridDim.x * kBlockThreads) {
    const unsigned column = i % columns;
    int p = 0;
    while (p + 1 < phase.num_panels &&
           column >= static_cast<unsigned>(phase.panels[p + 1].first_column))
      ++p;
    const Panel& panel = phase.panels[p];
    // Tokens are in range, except in tests that leave out a wait.
    const auto rows = static_cast<unsigned>(phase.rows),
               token = static_cast<unsigned>(tokens[i / columns]);
    const unsigned row = token < rows ? token : 0;
    publish(phase.y + i,
            table_element(panel, row, column - static_cast<unsigned>(panel.first_column)));
  }
}

// The block's share of all elements of a sum.
DEVICE void add_rows(const Steps& steps, const DevicePhase& phase) {
  const bool a_is_selected = phase.source == DevicePhase::kSelectedRows,
             b_is_selected = phase.residual_is_selected;
  const auto columns = static_cast<unsigned>(phase.columns);
  const unsigned all = static_cast<unsigned>(rows_of(steps, phase)) * columns;
  for (unsigned i = blockIdx.x * kBlockThreads + threadIdx.x; i < all;
       i += gridDim.x * kBlockThreads) {
    unsigned selected = i;
    if (a_is_selected || b_is_selected)
      selected = static_cast<unsigned>(steps.selected[i / columns]) * columns + i % columns;
    publish(phase.y + i, observe(phase.x + (a_is_selected ? selected : i)) +
                             observe(phase.residual + (b_is_selected ? selected : i)));
  }
}

template <class Kernel>
DEVICE void multiply(Block<Kernel>& block, const DevicePhase& phase) {
  using Activations = typename Kernel::Activations;
  const int rows = rows_of(block.steps, phase), lane = lane_of_thread();
  const bool is_prepared = is_prepared_together(phase, rows, block.memory.positions);
  if (phase.norm != nullptr && !is_prepared)
    measure_rows(block.steps, phase, block.memory, {0, 1, rows, 0, 1});
  for (int p = 0; p < phase.num_panels; ++p) {
    const Panel& panel = phase.panels[p];
    unsigned char* const memory = block.memory.activations;
    const Activations x(memory, panel.format);
    // The activations of the panel before may be overwritten: warps share the tiles of a matrix of
    // several panels, which require_shared_tiles() checks, and the barrier at which they join their
    // sums comes after the last read.
    if (is_prepared)
      Activations::fetch_steps(panel.format, panel.steps, block.steps.prepared + p * kPreparedBytes,
                               memory);
    else
      prepare_panel(block.steps, phase, panel, block.memory, x, {0, 1, rows, 0, 1});
    block_sync(kPrepared);
    const auto finish = [&](int tile, float4 sums) {
      if (phase.num_panels > 1) {  // of the panels before, by this thread
        float4* const kept = block.steps.sums + tile * 32 + lane;
        if (p > 0) sums = *kept + sums;
        if (p + 1 < phase.num_panels) {
          *kept = sums;
          return;
        }
      }
      if (lane / 4 >= rows) return;
      int row = tile * kTileRows + lane % 4 * 2;
#pragma unroll 1
      for (int half = 0; half < 2; ++half, row += 8)
        if (row < phase.rows)
          store_pair(block, phase, lane / 4, row, half == 0 ? sums.x : sums.z,
                     half == 0 ? sums.y : sums.w);
    };
    multiply_panel<typename Kernel::Sums>(panel, block.ring, x, rows, block.memory.partial,
                                          block.turn, finish);
  }
}

// Publishes the best logit of each token among the block's rows of the head.
template <class Kernel>
DEVICE void publish_best(Block<Kernel>& block) {
  const int lane = lane_of_thread(), rows = block.steps.num_chosen;
  const Best best = best_of_lanes(block.best, 1, 4);  // a lane has had one token only
  if (lane % 4 == 0) block.memory.best[warp_of_thread()][lane / 4] = best;
  block_sync(kBestOfWarps);
  const int row = static_cast<int>(threadIdx.x);
  if (row >= rows) return;
  Best of_block = block.memory.best[0][row];
#pragma unroll 1
  for (int w = 1; w < kBlockWarps; ++w) of_block.consider(block.memory.best[w][row]);
  publish(static_cast<Best*>(block.steps.best) + blockIdx.x * kMostTokens + row, of_block);
}

// Chooses the next tokens; every block computes all of them, one with each warp. Returns whether
// another step follows.
DEVICE bool choose_tokens(const Steps& steps, BlockMemory& memory, int step) {
  const int row = warp_of_thread(), lane = lane_of_thread();
  if (row < steps.num_chosen) {
    Best best;
#pragma unroll 2
    for (int b = lane; b < static_cast<int>(gridDim.x); b += 32)
      best.consider(observe(static_cast<const Best*>(steps.best) + b * kMostTokens + row));
    const int token = best_of_lanes(best, 1, 32).chosen();
    bool has_ended = token < 0 || token >= steps.num_words;
#pragma unroll 1
    for (int e = steps.ends_begin[row] + lane; e < steps.ends_begin[row + 1]; e += 32)
      has_ended |= token == steps.ends[e];
    has_ended = any_of_warp(has_ended);
    if (lane == 0) {
      if (blockIdx.x == 0) steps.chosen[step * steps.num_chosen + row] = token;
      memory.has_ended[row] = has_ended;
      memory.tokens[row] = token;
      ++memory.positions[row];
    }
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) *steps.num_done = step + 1;
  block_sync(kTokensChosen);
  bool goes_on = step + 1 < steps.num_steps;
#pragma unroll 1
  for (int r = 0; r < steps.num_chosen; ++r) goes_on &= memory.has_ended[r] == 0;
  return goes_on;
}

DEVICE void note_time(const Steps& steps, int number) {
  if (steps.times != nullptr && blockIdx.x == 0 && threadIdx.x == 0)
    steps.times[number] = global_timer();
}

template <class Kernel>
DEVICE void run_phase(Block<Kernel>& block, const DevicePhase& phase) {
  if (phase.kind == DevicePhase::kEmbed) {
    embed(block.steps, phase, block.memory.tokens);
  } else if (phase.kind == DevicePhase::kAttend) {
    attend(phase.attention, block.steps, block.memory.activations, block.memory.positions);
  } else if (phase.kind == DevicePhase::kAdd) {
    add_rows(block.steps, phase);
  } else {
    multiply(block, phase);
    if (phase.result == DevicePhase::kLogits) publish_best(block);
  }
}

namespace {

template <class Kernel>
__global__ void __launch_bounds__(kBlockThreads, 1) run_steps(const __grid_constant__ Steps steps) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  auto* const shared = static_cast<unsigned char*>(shared_memory());
  BlockMemory& memory =
      *reinterpret_cast<BlockMemory*>(shared + WeightRing<Kernel::kSlots>::kBytes);
  WeightRing<Kernel::kSlots> ring;
  ring.begin(shared, steps.panels, steps.num_panels);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < steps.num_tokens) {
    memory.tokens[thread] = steps.tokens[thread];
    memory.positions[thread] = steps.positions[thread];
  }
  if (thread == 0) memory.gave_up = false;
  block_sync(kStepBegins);

  GridBarrier barrier(steps.barrier);
  Block<Kernel> block{steps, memory, ring, 0, {}};
  const auto meet = [&] {
    barrier.arrive(kPhase);
    return barrier.wait_at_most(kPhase, steps.nanoseconds, &memory.gave_up);
  };
  for (int step = 0; step < steps.num_steps; ++step) {
    block.best = {};
    note_time(steps, 0);
    for (int p = 0; p < steps.num_phases; ++p) {
      const DevicePhase& phase = steps.phases[p];
      const int rows = rows_of(steps, phase);
      bool goes_on = true;
      if (phase.kind == DevicePhase::kProduct &&
          is_prepared_together(phase, rows, memory.positions)) {
        prepare_for_all<typename Kernel::Activations>(steps, phase, memory, rows);
        goes_on = meet();
      }
      if (goes_on) {
        run_phase(block, phase);
        goes_on = meet();
      }
      if (!goes_on) {
        if (thread == 0) steps.states[blockIdx.x] = {1, step, p, ring.next_panel()};
        return ring.end();
      }
      note_time(steps, p + 1);
    }
    if (steps.num_chosen > 0 && !choose_tokens(steps, memory, step)) break;
  }
  ring.end();
#endif
}

template <class Kernel>
void launch_kernel(const Steps& steps, const StepGrid& grid, cudaStream_t stream) {
  const std::size_t bytes = shared_bytes(Kernel::kSlots);
  CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(run_steps<Kernel>),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
  Grid launched{dim3(static_cast<unsigned>(grid.blocks)), dim3(kBlockThreads), bytes};
  launched.is_cooperative = true;
  launch(stream, launched, run_steps<Kernel>, steps);
}

template <int kSlots>
void launch_with(const Steps& steps, const StepGrid& grid, cudaStream_t stream) {
  grid.uses_tensor_cores ? launch_kernel<Kernel<kSlots, TensorCoreSums>>(steps, grid, stream)
                         : launch_kernel<Kernel<kSlots, CudaCoreSums>>(steps, grid, stream);
}

}  // namespace

std::size_t prepared_bytes() { return kPreparedBytes; }

std::size_t shared_bytes(int slots) {
  return sizeof(BlockMemory) + (slots == 4 ? WeightRing<4>::kBytes : WeightRing<3>::kBytes);
}

void launch_steps(const Steps& steps, const StepGrid& grid, cudaStream_t stream) {
  grid.slots == 4 ? launch_with<4>(steps, grid, stream) : launch_with<3>(steps, grid, stream);
}

}  // namespace tensor_ops::decode
