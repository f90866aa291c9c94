// How matrices lie in device memory: in the order in which tensor cores take them.
//
// A panel is a range of columns whose activations fit in shared memory. It consists of tiles of 16
// rows, and a tile of steps, which a warp multiplies one at a time. A step has four vectors of 16
// bytes for each lane, one for each of two parts of its columns and two halves of its rows,
//
//     [part][half of the rows][lane][16 bytes]
//
// followed by the scales of its blocks in half precision, two rows together:
//
//     [half of the rows][pair of rows][block][row of the pair]
//
// Lane l has row l / 4 of a half. Of each block of 32 integers it has the columns from 4 (l % 4)
// and from 16 + 4 (l % 4) on, four of each; of each block of 16 numbers of bfloat16 those from 2 (l
// % 4) and from 8 + 2 (l % 4) on, two of each. The products of a pair of rows end in one lane.
#pragma once

#include <cstddef>

namespace tensor_ops::decode {

enum class WeightFormat : int { kQ8_0, kQ4_0, kBFloat16 };

constexpr int kTileRows = 16;
constexpr int kBodyBytes = 2048;  // of a step, without scales
constexpr int kMostStepBytes = 2304;

struct StepLayout {
  int columns, block;  // in a step, and of a block
  int scale_bytes;

  constexpr int blocks() const { return columns / block; }
  constexpr int bytes() const { return kBodyBytes + scale_bytes; }
};

// The most columns of a panel. The order of a sum depends on the shape and the type of a matrix
// alone.
constexpr int kPanelColumns = 2048, kFloatPanelColumns = 512;

constexpr StepLayout layout_of(WeightFormat format) {
  return format == WeightFormat::kQ8_0   ? StepLayout{128, 32, 128}
         : format == WeightFormat::kQ4_0 ? StepLayout{256, 32, 256}
                                         : StepLayout{64, 16, 0};
}
constexpr int panel_columns(WeightFormat format) {
  return format == WeightFormat::kBFloat16 ? kFloatPanelColumns : kPanelColumns;
}

struct Panel {
  const unsigned char* data;
  WeightFormat format;
  int tiles, steps;  // of a tile
  int log2_split;    // 2^log2_split warps divide the steps of a tile, round-robin
  int first_column;  // of the matrix
};

// Where an element of a panel is: the first byte, or the byte of which it is a half.
struct ElementPlace {
  std::size_t at, scale_at;
  bool is_upper;  // of Q4_0: the upper half of the byte
};

#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr ElementPlace place_of(WeightFormat format, int steps, unsigned row, unsigned column) {
  const StepLayout layout = layout_of(format);
  const auto columns = static_cast<unsigned>(layout.columns);
  const auto of_block = static_cast<unsigned>(layout.block);
  const auto blocks = static_cast<unsigned>(layout.blocks());
  const std::size_t step =
      static_cast<std::size_t>(row / kTileRows) * static_cast<std::size_t>(steps) +
      column / columns;
  const std::size_t first = step * static_cast<std::size_t>(layout.bytes());
  const unsigned half = row / 8 % 2, in_half = row % 8, in_step = column % columns;
  const unsigned block = in_step / of_block, in_block = in_step % of_block;
  const unsigned in_part = block % (blocks / 2), part = block / (blocks / 2);
  const unsigned wide = of_block / 8;  // neighbours in a lane
  const unsigned side = in_block / (of_block / 2), lane = in_half * 4 + in_block / wide % 4;
  unsigned at = (part * 2 + half) * 512 + lane * 16;
  if (format == WeightFormat::kQ8_0) at += (2 * in_part + side) * 4 + in_block % wide;
  if (format == WeightFormat::kQ4_0) at += in_part * 4 + in_block % wide;
  if (format == WeightFormat::kBFloat16) at += (2 * in_part + side) * 4 + in_block % wide * 2;
  const unsigned scale =
      kBodyBytes + ((half * 4 + in_half / 2) * blocks + block) * 4 + in_half % 2 * 2;
  return {first + at, first + scale, side == 1};
}

}  // namespace tensor_ops::decode
