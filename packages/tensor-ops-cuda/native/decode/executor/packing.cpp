#include "decode/executor/packing.h"

#include <algorithm>
#include <cstring>

#include "declaration/errors.h"
#include "decode/program/pieces.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

constexpr std::size_t kBlockColumns = 32;  // of a file's blocks of integers

std::size_t file_block_bytes(WeightFormat format) {
  return format == WeightFormat::kQ4_0 ? 18 : 34;
}

// How many warps share a tile. On a device of 132 multiprocessors, as many as make the last of them
// end the earliest: shared by more warps, tiles are divided more evenly, but each is followed by a
// wait of the block, which takes as long as a sixth of a step (by counting instructions). It is a
// rule of the shape alone, since it decides on the order of sums. Where several panels follow each
// other, their activations are replaced between two of them, after such a wait.
int log2_split_for(int tiles, int steps, bool is_followed) {
  constexpr int kMultiprocessors = 132;
  constexpr double kWait = 1.0 / 6;
  int best = 0;
  double least = 0;
  for (int log2_split = is_followed ? 1 : 0; 1 << log2_split <= std::min(kBlockWarps, steps);
       ++log2_split) {
    const int together = kBlockWarps >> log2_split;
    const int passes = (tiles + kMultiprocessors * together - 1) / (kMultiprocessors * together);
    const int own_steps = (steps + (1 << log2_split) - 1) >> log2_split;
    const double time = passes * (own_steps + (log2_split > 0 ? kWait : 0));
    if (least > 0 && time >= least) continue;
    least = time;
    best = log2_split;
  }
  return best;
}

// The integers of columns of a block from 4 w and from 16 + 4 w on, in two words, or in the halves
// of one.
void pack_q8_0(const unsigned char* block, int w, unsigned char* to) {
  std::memcpy(to, block + 2 + 4 * w, 4);
  std::memcpy(to + 4, block + 2 + 16 + 4 * w, 4);
}
// A file has column i in the lower half of a byte, column i + 16 in the upper one. Less 8, they are
// signed.
void pack_q4_0(const unsigned char* block, int w, unsigned char* to) {
  for (int i = 0; i < 4; ++i) to[i] = block[2 + 4 * w + i] ^ 0x88;
}

// The numbers of 16 columns, of which a row may have fewer left.
void pack_bfloat16(const unsigned char* numbers, std::size_t left, int w, unsigned char* to) {
  const auto first = static_cast<std::size_t>(2 * w);
  const auto count = [left](std::size_t at) {
    return at < left ? std::min<std::size_t>(left - at, 2) : 0;
  };
  std::memcpy(to, numbers + 2 * first, 2 * count(first));
  std::memcpy(to + 4, numbers + 2 * (8 + first), 2 * count(8 + first));
}

void pack_step(const Panel& panel, std::size_t columns, std::size_t column, const RowOf& row,
               std::size_t first_row, unsigned char* to) {
  const StepLayout layout = layout_of(panel.format);
  for (unsigned r = 0; r < kTileRows; ++r) {
    const unsigned char* const from = row(first_row + r);
    for (int b = 0; from && b < layout.blocks(); ++b) {
      const auto in_step = static_cast<unsigned>(b * layout.block);
      const std::size_t at = column + in_step;
      if (at >= columns) break;
      const ElementPlace place = place_of(panel.format, 1, r, in_step);
      const unsigned char* const block = from + at / kBlockColumns * file_block_bytes(panel.format);
      for (int w = 0; w < 4; ++w) {  // the four lanes of a row are neighbours
        unsigned char* const lane = to + place.at + w * 16;
        if (panel.format == WeightFormat::kBFloat16)
          pack_bfloat16(from + 2 * at, columns - at, w, lane);
        else
          panel.format == WeightFormat::kQ4_0 ? pack_q4_0(block, w, lane)
                                              : pack_q8_0(block, w, lane);
      }
      if (layout.scale_bytes > 0) std::memcpy(to + place.scale_at, block, 2);
    }
  }
}

}  // namespace

std::size_t tile_bytes(const Panel& panel) {
  return static_cast<std::size_t>(panel.steps) *
         static_cast<std::size_t>(layout_of(panel.format).bytes());
}

PanelPlan plan_panels(WeightFormat format, std::size_t rows, std::size_t columns) {
  const auto step = static_cast<std::size_t>(layout_of(format).columns);
  const auto most = static_cast<std::size_t>(panel_columns(format));
  const auto tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows);
  PanelPlan plan{{}, {}, 0};
  for (std::size_t column = 0; column < columns; column += most) {
    const auto steps = static_cast<int>((std::min(columns - column, most) + step - 1) / step);
    Panel panel{nullptr, format, tiles, steps, 0, static_cast<int>(column)};
    // The same warps share a tile in all panels.
    panel.log2_split = plan.panels.empty() ? log2_split_for(tiles, steps, columns > most)
                                           : plan.panels[0].log2_split;
    plan.panels.push_back(panel);
    plan.offset.push_back(plan.bytes);
    add_size("weights", plan.bytes,
             aligned(size_product("weights", static_cast<std::size_t>(tiles), tile_bytes(panel))));
  }
  require_shared_tiles(plan.panels);
  return plan;
}

// Where warps share a tile, they meet after their last read of a panel, and one thread keeps the
// sums of the panels before (multiply() in decode/steps.cu).
void require_shared_tiles(const std::vector<Panel>& panels) {
  if (panels.size() < 2) return;
  for (const Panel& panel : panels)
    if (panel.log2_split < 1 || panel.log2_split != panels[0].log2_split)
      throw Error(text("a matrix of ", panels.size(),
                       " panels needs tiles that 2, 4 or 8 warps share, as many in each panel; got "
                       "panels whose tiles are of ",
                       joined(panels, [](const Panel& each) { return 1 << each.log2_split; }),
                       " warps"));
}

void pack_tiles(const Panel& panel, std::size_t columns, std::size_t first, std::size_t end,
                const RowOf& row, unsigned char* to) {
  const StepLayout layout = layout_of(panel.format);
  const auto bytes = static_cast<std::size_t>(layout.bytes());
  std::memset(to, 0, (end - first) * tile_bytes(panel));
  for (std::size_t tile = first; tile < end; ++tile)
    for (int s = 0; s < panel.steps; ++s, to += bytes)
      pack_step(panel, columns, static_cast<std::size_t>(panel.first_column + s * layout.columns),
                row, tile * kTileRows, to);
}

}  // namespace tensor_ops::decode
