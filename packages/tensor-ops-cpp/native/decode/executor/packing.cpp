// When the weights of an Executable are packed: all at once, or little by little in its first
// steps.
#include <algorithm>

#include "decode/executor/executable.h"
#include "memory/pages.h"

namespace tensor_ops::decode {
namespace {

// In how many steps the weights are packed, after the first one, which packs nothing: memory that
// the system has to find takes longer than reading the weights. Until then a step packs tiles into
// scratch, which the cache holds, and that takes time as well.
constexpr std::size_t kPackingSteps = 16;

// Counts tiles as packed, which are not read again where they came from.
void set_packed(TileRun& run, std::size_t tiles) {
  const std::size_t begin = std::min(run.num_packed * kTileRows, run.rows);
  const std::size_t end = std::min(tiles * kTileRows, run.rows);
  if (run.is_mapped_file)
    release_mapped_file(run.source + begin * run.source_row_bytes,
                        (end - begin) * run.source_row_bytes);
  run.num_packed = tiles;
}

}  // namespace

void Executable::plan_packing() {
  if (!std::exchange(has_run_, true)) return;
  for (std::size_t t = 0; t < threads_; ++t) {
    std::size_t left = 0;  // of what this thread packs in a step
    for (const Compiled& node : nodes_)
      if (!node.tiles.empty())
        for (const TileRun& run : node.tiles[t]) left += tiles_of(run.rows) * run.tile_bytes;
    left = (left + kPackingSteps - 1) / kPackingSteps;
    for (Compiled& node : nodes_) {
      const bool runs = node.rows == Rows::kTokens || step_.num_selected > 0;
      if (!runs || node.tiles.empty()) continue;
      for (TileRun& run : node.tiles[t]) {
        const std::size_t wanted = (left + run.tile_bytes - 1) / run.tile_bytes;
        const std::size_t count = std::min(wanted, tiles_of(run.rows) - run.num_packed);
        run.num_to_pack = run.num_packed + count;
        left -= std::min(left, count * run.tile_bytes);
      }
    }
  }
}

void Executable::note_packed() {
  bool all = true;
  for (Compiled& node : nodes_)
    for (auto& of_thread : node.tiles)
      for (TileRun& run : of_thread) {
        if (run.num_to_pack > run.num_packed) set_packed(run, run.num_to_pack);
        all &= run.num_packed == tiles_of(run.rows);
      }
  is_packed_ = all;
}

void Executable::pack_rest(bool of_mapped_files, const Progress& progress) {
  if (is_packed_) return;
  const auto is_meant = [=](const TileRun& run) { return of_mapped_files || !run.is_mapped_file; };
  std::size_t done = 0;
  for (Compiled& node : nodes_) {
    if (node.tiles.empty()) continue;
    team_->run(threads_, [&](std::size_t thread) {
      for (const TileRun& run : node.tiles[thread])
        if (is_meant(run))
          for (std::size_t t = run.num_packed; t < tiles_of(run.rows); ++t)
            run.pack_tile(t, node.shares[thread].product_columns, run.tiles + t * run.tile_bytes);
    });
    for (auto& of_thread : node.tiles)
      for (TileRun& run : of_thread) {
        if (is_meant(run)) set_packed(run, tiles_of(run.rows));
        done += run.num_packed * run.tile_bytes;
      }
    if (progress) progress(done, packed_size_);
  }
  is_packed_ = done == packed_size_;
}

}  // namespace tensor_ops::decode
