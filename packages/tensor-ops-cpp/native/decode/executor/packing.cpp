// When the weights of an Executable are packed: all at once, or little by little after its steps.
#include <algorithm>

#include "decode/executor/executable.h"
#include "memory/pages.h"

namespace tensor_ops::decode {
namespace {

// Counts tiles as packed, which are not read again where they came from.
void set_packed(TileRun& run, std::size_t tiles) {
  const std::size_t begin = std::min(run.num_packed * kTileRows, run.rows);
  const std::size_t end = std::min(tiles * kTileRows, run.rows);
  if (run.is_mapped_file)
    release_mapped_file(run.source + begin * run.source_row_bytes,
                        (end - begin) * run.source_row_bytes);
  run.num_packed = tiles;
}

// The least that all workers together pack after a step: small models are packed after one.
constexpr std::size_t kLeastPacked = std::size_t{128} << 20;

// How much each worker packs before it gives back what it has read, so that a large matrix is not
// in memory twice.
constexpr std::size_t kKept = std::size_t{2} << 20;

// How much a worker packs: a number of bytes, and then more until a point in time.
class Allowance {
 public:
  Allowance(std::size_t bytes, Team::Clock::time_point end) : left_(bytes), end_(end) {}
  void take(std::size_t bytes) { left_ -= std::min(left_, bytes); }
  bool is_used_up() const { return left_ == 0 && Team::Clock::now() >= end_; }

 private:
  std::size_t left_;
  const Team::Clock::time_point end_;
};

}  // namespace

// Each worker packs tiles of its own shares. The first step does not wait: memory that the system
// has to find may take longer than all else.
void Executable::pack_after_step(Team::Clock::duration taken) {
  if (!std::exchange(has_run_, true)) return;
  const auto now = Team::Clock::now();
  const Allowance of_each = packed_per_step_ ? Allowance(packed_per_step_, now)
                                             : Allowance(kLeastPacked / workers_, now + taken);
  team_->run(workers_, [&](std::size_t worker) {
    Allowance allowance = of_each;
    const auto [first, behind] = shares_of(worker);
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      Compiled& node = nodes_[n];
      if (node.packed_by != n) continue;
      for (std::size_t t = first; t < behind; ++t)
        for (TileRun& run : node.tiles[t]) {
          std::size_t tile = run.num_packed;
          for (; tile < tiles_of(run.rows) && !allowance.is_used_up(); ++tile) {
            run.pack_tile(tile, node.shares[t].product_columns, run.tiles + tile * run.tile_bytes);
            allowance.take(run.tile_bytes);
            if ((tile + 1 - run.num_packed) * run.tile_bytes >= kKept) set_packed(run, tile + 1);
          }
          set_packed(run, tile);
        }
    }
  });
  note_packed();
  is_packed_ = std::all_of(nodes_.begin(), nodes_.end(), [](const Compiled& node) {
    return std::all_of(node.tiles.begin(), node.tiles.end(), [](const auto& of_thread) {
      return std::all_of(of_thread.begin(), of_thread.end(),
                         [](const TileRun& run) { return run.num_packed == tiles_of(run.rows); });
    });
  });
}

std::vector<std::size_t> Executable::last_read_by(std::size_t node) const {
  std::vector<std::size_t> found;
  for (const std::size_t tensor : *matrices_of(program_.nodes[node])) {
    bool is_read = reads_from_caller(tensor);
    for (std::size_t n = node + 1; n < nodes_.size() && !is_read; ++n)
      if (const auto* matrices = matrices_of(program_.nodes[n]); nodes_[n].packed_by == n)
        is_read = std::find(matrices->begin(), matrices->end(), tensor) != matrices->end();
    if (!is_read) found.push_back(tensor);
  }
  return found;
}

void Executable::pack_rest(bool of_mapped_files, const Progress& progress, const LetGo& let_go) {
  if (is_packed_) return;
  const auto is_meant = [=](const TileRun& run) { return of_mapped_files || !run.is_mapped_file; };
  std::size_t done = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    Compiled& node = nodes_[n];
    if (node.packed_by != n) continue;
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
    if (let_go && of_mapped_files) let_go(last_read_by(n));
    if (progress) progress(done, packed_size_);
  }
  note_packed();
  is_packed_ = done == packed_size_;
}

void Executable::note_packed() {
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].packed_by == kAbsent || nodes_[n].packed_by == n) continue;
    const auto& packed = nodes_[nodes_[n].packed_by].tiles;
    for (std::size_t t = 0; t < packed.size(); ++t)
      for (std::size_t i = 0; i < packed[t].size(); ++i)
        nodes_[n].tiles[t][i].num_packed = packed[t][i].num_packed;
  }
}

}  // namespace tensor_ops::decode
