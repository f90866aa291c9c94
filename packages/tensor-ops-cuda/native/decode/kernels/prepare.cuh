// Preparing the activations of a product: rows of x, normalised or not, or the output of attention.
#pragma once

#include "decode/kernels/block.cuh"
#include "kernels/rms.cuh"

namespace tensor_ops::decode {

// With at least kManyTokens tokens, or kManySpans spans of attention, the blocks divide the
// preparation of a product's activations among themselves, at the cost of one more grid barrier.
// Otherwise each block prepares all activations for itself.
constexpr int kManyTokens = 4, kManySpans = 3;

DEVICE bool is_prepared_together(const DevicePhase& phase, int rows, const int* positions) {
  bool is_much = rows >= kManyTokens;
  if (phase.source == DevicePhase::kAttended)
#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
      const Spans spans = spans_of(phase.attention, positions[row]);
      is_much |= spans.end - spans.first >= kManySpans;
    }
  return is_much;
}

using NormRow = RmsRow<float, float, NoResidual>;

// Four columns of the rows of x.
DEVICE float4 row_vector(const Steps& steps, const DevicePhase& phase, int row, int column) {
  const int from = row_in(steps, phase.source == DevicePhase::kSelectedRows, row);
  const std::int64_t first = static_cast<std::int64_t>(from) * phase.columns;
  return observe(reinterpret_cast<const float4*>(phase.x + first + column));
}

// Four columns of what a product multiplies. Beyond the last column there are zeros.
DEVICE float4 source_vector(const Steps& steps, const DevicePhase& phase, const int* positions,
                            int row, int column) {
  if (column >= phase.columns) return {0, 0, 0, 0};
  if (phase.source == DevicePhase::kAttended)
    return attended(phase.attention, row, column, spans_of(phase.attention, positions[row]));
  return row_vector(steps, phase, row, column);
}

// The rows that a block prepares, and which of `parts` equal parts of each row.
struct RowParts {
  int first, step, end;
  int part, parts;
};

// The share of this block where the blocks divide the rows among themselves.
DEVICE RowParts rows_of_block(int rows) {
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  if (blocks <= rows) return {block, blocks, rows, 0, 1};
  const int row = block % rows;
  return {row, rows, rows, block / rows, (blocks - row + rows - 1) / rows};
}

// Functions that are called seldom, or from two places, are not inlined, to keep the kernel's code
// small.

// Computes 1 / rms of rows into memory.scales; negated for rows that have to be scaled in double.
// All threads of the block take part.
static __device__ __noinline__ void measure_rows(const Steps& steps, const DevicePhase& phase,
                                                 BlockMemory& memory, RowParts rows) {
  const auto vector = [&](int row, int column) {
    const float4 v = row_vector(steps, phase, row, column);
    return NormRow::Vectors{{{v.x, v.y, v.z, v.w}}, {}};
  };
  SquareGroup group({}, &memory.group);
  const int first = group.lane() * 4, step = kBlockThreads * 4;
  for (int row = rows.first; row < rows.end; row += rows.step) {
    float sum = 0;
    for (int c = first; c < phase.columns; c += step)
      sum = NormRow::plus_squares(sum, vector(row, c));
    const float mean = group.combine(sum, Plus()) / static_cast<float>(phase.columns) +
                       static_cast<float>(phase.eps);
    double scale = static_cast<double>(1 / sqrtf(mean));
    if (!is_safe(mean)) {  // for all threads alike
      double wide = 0;
      for (int c = first; c < phase.columns; c += step)
        wide = NormRow::plus_squares(wide, vector(row, c));
      scale = -1 / sqrt(group.combine(wide, Plus()) / phase.columns + phase.eps);
    }
    if (threadIdx.x == 0) memory.scales[row] = scale;
  }
  block_sync(kMeasured);
}

static __device__ __noinline__ float carefully_normalised(float x, double scale, float weight) {
  return static_cast<float>(static_cast<double>(x) * -scale * static_cast<double>(weight));
}
DEVICE float normalised(float x, double scale, float weight) {
  return scale > 0 ? x * static_cast<float>(scale) * weight
                   : carefully_normalised(x, scale, weight);
}

// The activations of rows in the columns of a panel, which are written to x. All threads of the
// block take part.
template <class Activations>
__device__ __noinline__ void prepare_panel(const Steps& steps, const DevicePhase& phase,
                                           const Panel& panel, BlockMemory& memory, Activations x,
                                           RowParts rows) {
  const int vectors = panel.steps * layout_of(panel.format).columns / 4;
  const int units = (vectors + 31) / 32, num_rows = (rows.end - rows.first - 1) / rows.step + 1;
  for (int unit = rows.part * kBlockWarps + warp_of_thread(); unit < units * num_rows;
       unit += rows.parts * kBlockWarps) {
    const int row = rows.first + unit / units * rows.step;
    const int vector = unit % units * 32 + lane_of_thread();
    const bool is_there = vector < vectors;
    const int in_panel = is_there ? vector * 4 : 0, column = panel.first_column + in_panel;
    const float4 v = source_vector(steps, phase, memory.positions, row, column);
    float values[4] = {v.x, v.y, v.z, v.w};
    if (phase.norm != nullptr && column < phase.columns)
#pragma unroll
      for (int k = 0; k < 4; ++k)
        values[k] = normalised(values[k], memory.scales[row], phase.norm[column + k]);
    x.store_vector(panel.format, row, in_panel, values, is_there);
  }
}

// The block's part of the activations of all panels, for all blocks.
template <class Activations>
DEVICE void prepare_for_all(const Steps& steps, const DevicePhase& phase, BlockMemory& memory,
                            int rows) {
  const RowParts own = rows_of_block(rows);
  if (own.first >= rows) return;
  if (phase.norm != nullptr) measure_rows(steps, phase, memory, own);
  for (int p = 0; p < phase.num_panels; ++p) {
    const Activations x(steps.prepared + p * kPreparedBytes, phase.panels[p].format, true);
    prepare_panel(steps, phase, phase.panels[p], memory, x, own);
  }
}

}  // namespace tensor_ops::decode
