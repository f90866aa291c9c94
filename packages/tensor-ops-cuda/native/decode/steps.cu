// Whole decode steps as one cooperative kernel: phase after phase is shared by all blocks, which
// meet between phases, while their rings go on reading weights.
#include "decode/kernels/attention.cuh"
#include "decode/kernels/choice.cuh"
#include "decode/kernels/product.cuh"
#include "decode/steps.h"
#include "kernels/launch.cuh"
#include "kernels/rms.cuh"
#include "kernels/rope.cuh"
#include "kernels/sigmoid.cuh"

namespace tensor_ops::decode {
namespace {

template <class T>
constexpr T greater(T a, T b) {
  return a > b ? a : b;
}

// A block's shared memory, behind the ring.
struct BlockMemory {
  alignas(
      16) unsigned char activations[greater(greater(kIntegerBytes, kFloatBytes), kAttentionBytes)];
  PartialSums partial;
  TeamMemory team;
  double scales[kMostTokens];  // of normalised rows
  Best best[kBlockWarps][kMostTokens];
  int tokens[kMostTokens], positions[kMostTokens];
  bool gave_up, is_last;
};

// The block, adding up squares.
struct SquareThreads {
  DEVICE int lane() const { return static_cast<int>(threadIdx.x); }
  DEVICE int lanes() const { return kBlockThreads; }
  DEVICE void wait() const { block_sync(kSquares); }
};
using SquareTeam = Team<SquareThreads>;
using NormRow = RmsRow<float, float, NoResidual>;

// What the phases of a step have in common.
template <int kSlots>
struct Block {
  const Steps& steps;
  BlockMemory& memory;
  WeightRing<kSlots>& ring;
  SquareTeam team;
  int turn;  // of the partial sums
  Best best;
};

DEVICE int rows_of(const Steps& steps, const Phase& phase) {
  return phase.is_selected ? steps.num_selected : steps.num_tokens;
}

DEVICE float table_element(const Panel& panel, int row, int column) {
  const ElementPlace place = place_of(panel.format, panel.steps, row, column);
  const unsigned char* const at = panel.data + place.at;
  if (panel.format == WeightFormat::kBFloat16) return real(*reinterpret_cast<const BFloat16*>(at));
  const float scale = real(*reinterpret_cast<const Float16*>(panel.data + place.scale_at));
  if (panel.format == WeightFormat::kQ8_0)
    return scale * static_cast<float>(static_cast<signed char>(*at));
  const int byte = place.is_upper ? *at & 0xf0 : *at << 4 & 0xf0;
  return scale * static_cast<float>(static_cast<signed char>(byte) / 16);
}

// Rows of a table, in float32: the block's share of all elements.
DEVICE void embed(const Steps& steps, const Phase& phase, const int* tokens) {
  const int all = steps.num_tokens * phase.columns;
  const int step = static_cast<int>(gridDim.x) * kBlockThreads;
  for (int i = static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x); i < all; i += step) {
    const int token = i / phase.columns, column = i % phase.columns;
    int p = 0;
    while (p + 1 < phase.num_panels && column >= phase.panels[p + 1].first_column) ++p;
    const Panel& panel = phase.panels[p];
    publish(phase.y + i, table_element(panel, tokens[token], column - panel.first_column));
  }
}

// Four columns of the rows of x.
DEVICE float4 row_vector(const Steps& steps, const Phase& phase, int row, int column) {
  const int from = phase.source == Phase::kSelectedRows ? steps.selected[row] : row;
  const std::int64_t first = static_cast<std::int64_t>(from) * phase.columns;
  return observe(reinterpret_cast<const float4*>(phase.x + first + column));
}

// Four columns of what a product multiplies. Beyond the last column there are zeros.
DEVICE float4 source_vector(const Steps& steps, const Phase& phase, const int* positions, int row,
                            int column) {
  if (column >= phase.columns) return {0, 0, 0, 0};
  if (phase.source == Phase::kAttended)
    return attended(phase.attention, row, column, spans_of(phase.attention, positions[row]));
  return row_vector(steps, phase, row, column);
}

// What each row is divided by, for all rows of a normalised product. Negative where the mean of
// squares needs double.
template <int kSlots>
DEVICE void measure_rows(Block<kSlots>& block, const Phase& phase, int rows) {
  const auto vector = [&](int row, int column) {
    const float4 v = row_vector(block.steps, phase, row, column);
    return NormRow::Vectors{{{v.x, v.y, v.z, v.w}}, {}};
  };
  const int first = block.team.lane() * 4, step = kBlockThreads * 4;
  for (int row = 0; row < rows; ++row) {
    float sum = 0;
    for (int c = first; c < phase.columns; c += step)
      sum = NormRow::plus_squares(sum, vector(row, c));
    const float mean = block.team.combine(sum, Plus()) / static_cast<float>(phase.columns) +
                       static_cast<float>(phase.eps);
    double scale = static_cast<double>(1 / sqrtf(mean));
    if (!is_safe(mean)) {  // for all threads alike
      double wide = 0;
      for (int c = first; c < phase.columns; c += step)
        wide = NormRow::plus_squares(wide, vector(row, c));
      scale = -1 / sqrt(block.team.combine(wide, Plus()) / phase.columns + phase.eps);
    }
    if (threadIdx.x == 0) block.memory.scales[row] = scale;
  }
}

DEVICE float normalised(float x, double scale, float weight) {
  if (scale > 0) return x * static_cast<float>(scale) * weight;
  return static_cast<float>(static_cast<double>(x) * -scale * static_cast<double>(weight));
}

// The activations of a panel, by the whole block: every row of weights needs all of them.
template <int kSlots>
DEVICE void prepare(Block<kSlots>& block, const Phase& phase, const Panel& panel, Activations x,
                    int rows) {
  const StepLayout layout = layout_of(panel.format);
  const int vectors = panel.steps * layout.columns / 4, all = vectors * rows;
  for (int first = warp_of_thread() * 32; first < all; first += kBlockThreads) {
    const bool is_there = first + lane_of_thread() < all;
    const int i = is_there ? first + lane_of_thread() : 0;
    const int row = i / vectors, in_panel = i % vectors * 4, column = panel.first_column + in_panel;
    const float4 v = source_vector(block.steps, phase, block.memory.positions, row, column);
    float values[4] = {v.x, v.y, v.z, v.w};
    if (phase.norm != nullptr && column < phase.columns)
#pragma unroll
      for (int k = 0; k < 4; ++k)
        values[k] = normalised(values[k], block.memory.scales[row], phase.norm[column + k]);
    if (panel.format == WeightFormat::kBFloat16) {
      if (is_there) x.store_floats(row, in_panel, values);
    } else {
      x.store_integers(row, in_panel, values, is_there);
    }
  }
}

// A pair of a query, key or value, the first two rotated.
DEVICE void store_rotated(const Steps& steps, const Phase& phase, const int* positions, int token,
                          int row, float a, float b) {
  const Attention& attention = phase.attention;
  const int size = attention.head_size, head = row / size, d = row % size;
  const int keys = attention.heads, values = keys + attention.kv_heads;
  const int position = positions[token];
  if (head < values && d / 2 < attention.rotated_pairs) {
    const std::int64_t angle =
        static_cast<std::int64_t>(position) * attention.rotated_pairs + d / 2;
    const auto pair =
        rotated_in_range<float, float>(a, b, attention.cos[angle], attention.sin[angle]);
    a = pair.a;
    b = pair.b;
  }
  if (head < keys)
    return publish(reinterpret_cast<float2*>(attention.queries + (token * keys + head) * size + d),
                   float2{a, b});
  const int kv_head = head < values ? head - keys : head - values;
  const std::int64_t at = d + cache_place(attention, steps.page_table, steps.pages_per_request,
                                          steps.slots[token], kv_head, position);
  void* const to = head < values ? attention.keys : attention.values;
  if (attention.is_half) {
    const Packed<Float16, 2> pair{{rounded_to<Float16>(a), rounded_to<Float16>(b)}};
    publish(reinterpret_cast<Packed<Float16, 2>*>(static_cast<Float16*>(to) + at), pair);
  } else {
    publish(reinterpret_cast<float2*>(static_cast<float*>(to) + at), float2{a, b});
  }
}

DEVICE float silu_times(float gate, float up) {
  using Op = Silu<float>;
  return Op::is_ordinary(gate, up) ? Op::ordinary(gate, up) : Op::general(gate, up);
}

// What becomes of the sums of two rows, of which the first is even.
template <int kSlots>
DEVICE void store_pair(Block<kSlots>& block, const Phase& phase, int token, int row, float a,
                       float b) {
  switch (phase.result) {
    case Phase::kRotated:
      return store_rotated(block.steps, phase, block.memory.positions, token, row, a, b);
    case Phase::kGated:
      return publish(phase.y + static_cast<std::int64_t>(token) * (phase.rows / 2) + row / 2,
                     silu_times(a, b));
    default:
      break;
  }
  const float pair[2] = {a, b};
  for (int i = 0; i < 2 && row + i < phase.rows; ++i) {
    const std::int64_t at = static_cast<std::int64_t>(token) * phase.rows + row + i;
    publish(phase.y + at,
            phase.residual == nullptr ? pair[i] : pair[i] + observe(phase.residual + at));
    if (phase.result == Phase::kLogits) block.best.consider(pair[i], row + i);
  }
}

template <int kSlots>
DEVICE void multiply(Block<kSlots>& block, const Phase& phase) {
  const int rows = rows_of(block.steps, phase), lane = lane_of_thread();
  if (phase.norm != nullptr) measure_rows(block, phase, rows);
  for (int p = 0; p < phase.num_panels; ++p) {
    const Panel& panel = phase.panels[p];
    const Activations x(block.memory.activations, panel.format);
    if (p > 0 || phase.norm != nullptr) block_sync(kPanelRead);
    prepare(block, phase, panel, x, rows);
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
    multiply_panel(panel, block.ring, x, rows, block.memory.partial, block.turn, finish);
  }
}

// Tells the others the best logits of the block, once it has multiplied its rows of the head.
template <int kSlots>
DEVICE void publish_best(Block<kSlots>& block) {
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

// Every block finds the same tokens, so that none has to be told. Whether there is a next step.
DEVICE bool choose_tokens(const Steps& steps, BlockMemory& memory, int step) {
  const int row = static_cast<int>(threadIdx.x);
  if (row < kWarp) {
    bool is_last = step + 1 == steps.num_steps;
    if (row < steps.num_chosen) {
      Best best;
#pragma unroll 1
      for (unsigned b = 0; b < gridDim.x; ++b)
        best.consider(observe(static_cast<const Best*>(steps.best) + b * kMostTokens + row));
      const int token = best.chosen();
      is_last |= token < 0 || token >= steps.num_words;
      for (int e = steps.ends_begin[row]; e < steps.ends_begin[row + 1]; ++e)
        is_last |= token == steps.ends[e];
      if (blockIdx.x == 0) steps.chosen[step * steps.num_chosen + row] = token;
      if (steps.num_steps > 1) {
        memory.tokens[row] = token;
        ++memory.positions[row];
      }
    }
    is_last = any_of_warp(is_last);
    if (row == 0) {
      memory.is_last = is_last;
      if (blockIdx.x == 0) *steps.num_done = step + 1;
    }
  }
  block_sync(kTokensChosen);
  return !memory.is_last;
}

DEVICE void note_time(const Steps& steps, int number) {
  if (steps.times != nullptr && blockIdx.x == 0 && threadIdx.x == 0)
    steps.times[number] = global_timer();
}

template <int kSlots>
DEVICE void run_phase(Block<kSlots>& block, const Phase& phase) {
  if (phase.kind == Phase::kEmbed) {
    embed(block.steps, phase, block.memory.tokens);
  } else if (phase.kind == Phase::kAttend) {
    if (phase.attention.is_half)
      attend<Float16>(phase.attention, block.steps, block.memory.activations,
                      block.memory.positions);
    else
      attend<float>(phase.attention, block.steps, block.memory.activations, block.memory.positions);
  } else {
    multiply(block, phase);
    if (phase.result == Phase::kLogits) publish_best(block);
  }
}

template <int kSlots>
__global__ void __launch_bounds__(kBlockThreads, 1) run_steps(const __grid_constant__ Steps steps) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  auto* const shared = static_cast<unsigned char*>(shared_memory());
  BlockMemory& memory = *reinterpret_cast<BlockMemory*>(shared + WeightRing<kSlots>::kBytes);
  WeightRing<kSlots> ring;
  ring.begin(shared, steps.panels, steps.num_panels);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < steps.num_tokens) {
    memory.tokens[thread] = steps.tokens[thread];
    memory.positions[thread] = steps.positions[thread];
  }
  if (thread == 0) memory.gave_up = false;
  block_sync(kStepBegins);

  GridBarrier barrier(steps.barrier);
  Block<kSlots> block{steps, memory, ring, {{}, &memory.team}, 0, {}};
  for (int step = 0; step < steps.num_steps; ++step) {
    block.best = {};
    note_time(steps, 0);
    for (int p = 0; p < steps.num_phases; ++p) {
      run_phase(block, steps.phases[p]);
      barrier.arrive(kPhase);
      if (!barrier.wait_at_most(kPhase, steps.nanoseconds, &memory.gave_up)) {
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

template <int kSlots>
std::size_t bytes_with() {
  return WeightRing<kSlots>::kBytes + sizeof(BlockMemory);
}

template <int kSlots>
void launch_with(const Steps& steps, int blocks, cudaStream_t stream) {
  const auto bytes = bytes_with<kSlots>();
  CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(run_steps<kSlots>),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
  Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), bytes};
  grid.is_cooperative = true;
  launch(stream, grid, run_steps<kSlots>, steps);
}

}  // namespace

std::size_t shared_bytes(int slots) { return slots == 4 ? bytes_with<4>() : bytes_with<3>(); }

void launch_steps(const Steps& steps, const StepGrid& grid, cudaStream_t stream) {
  grid.slots == 4 ? launch_with<4>(steps, grid.blocks, stream)
                  : launch_with<3>(steps, grid.blocks, stream);
}

}  // namespace tensor_ops::decode
