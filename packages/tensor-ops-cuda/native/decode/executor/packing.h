// Matrices packed into panels.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "decode/executor/lowering.h"

namespace tensor_ops::decode {

// The panels of a matrix, whose data pointers are null, and the offsets of their packed data.
struct PanelPlan {
  std::vector<Panel> panels;
  std::vector<std::size_t> offset;  // of each panel
  std::size_t bytes;
};
PanelPlan plan_panels(WeightFormat format, std::size_t rows, std::size_t columns);

// Throws Error where the kernel would replace activations of a panel that a warp still reads.
void require_shared_tiles(const std::vector<Panel>& panels);

std::size_t tile_bytes(const Panel& panel);

// Packs tiles of a panel, from `first` up to `end`. row(i) is the memory of the i-th row as it is
// in a file, or null beyond the last row.
using RowOf = std::function<const unsigned char*(std::size_t)>;
void pack_tiles(const Panel& panel, std::size_t columns, std::size_t first, std::size_t end,
                const RowOf& row, unsigned char* to);

}  // namespace tensor_ops::decode
