// Each warp reads its weights through a ring buffer of its own in shared memory, filled by
// asynchronous copies. The order of all panels of a decode step is known, so that the ring is
// filled ahead also while the warp waits for other blocks, and into the next decode step.
#pragma once

#include "decode/kernels/plan.h"
#include "decode/kernels/waits.h"
#include "kernels/async_copy.cuh"

namespace tensor_ops::decode {

DEVICE int warp_of_thread() { return static_cast<int>(threadIdx.x) / 32; }
DEVICE int lane_of_thread() { return static_cast<int>(threadIdx.x) % 32; }

// A warp's share of a panel: every tile_step-th tile, and every 2^log2_split-th step of a tile.
struct WarpShare {
  int group, first_tile, tile_step, tiles, first_step, num_steps;

  DEVICE explicit WarpShare(const Panel& panel) {
    const int split = 1 << panel.log2_split, together = kBlockWarps >> panel.log2_split;
    group = warp_of_thread() >> panel.log2_split;
    first_tile = static_cast<int>(blockIdx.x) * together + group;
    tile_step = static_cast<int>(gridDim.x) * together;
    tiles = panel.tiles;
    first_step = warp_of_thread() & (split - 1);
    num_steps = (panel.steps - first_step + split - 1) >> panel.log2_split;
  }
  // The number of tiles of the block's first group, which has at least as many as the others.
  DEVICE int passes() const {
    const int first = first_tile - group;
    return first < tiles ? (tiles - first + tile_step - 1) / tile_step : 0;
  }
};

// The address of a warp's next step; null for a warp that has no share of any panel.
class WeightCursor {
 public:
  DEVICE void begin(const Panel* panels, int num_panels) {
    panels_ = panels;
    num_panels_ = num_panels;
    panel_ = num_panels - 1;
    go_to_next_panel();
  }
  DEVICE const unsigned char* at() const { return at_; }
  DEVICE int scale_lanes() const { return scale_lanes_; }
  DEVICE int panel() const { return panel_; }

  DEVICE void next() {
    at_ += stride_;
    if (--left_ > 0) return;
    tile_ += tile_step_;
    if (tile_ < tiles_) {
      tile_at_ += tile_stride_;
      at_ = tile_at_;
      left_ = num_steps_;
    } else {
      go_to_next_panel();
    }
  }

 private:
  DEVICE void go_to_next_panel() {
    at_ = nullptr;
    for (int i = 0; i < num_panels_ && at_ == nullptr; ++i) {
      panel_ = panel_ + 1 == num_panels_ ? 0 : panel_ + 1;
      const Panel& panel = panels_[panel_];
      const WarpShare share(panel);
      if (share.first_tile >= share.tiles || share.num_steps <= 0) continue;
      const StepLayout layout = layout_of(panel.format);
      const std::int64_t tile_bytes = static_cast<std::int64_t>(panel.steps) * layout.bytes();
      scale_lanes_ = layout.scale_bytes / 16;
      stride_ = layout.bytes() << panel.log2_split;
      tile_ = share.first_tile;
      tile_step_ = share.tile_step;
      tiles_ = share.tiles;
      tile_stride_ = share.tile_step * tile_bytes;
      left_ = num_steps_ = share.num_steps;
      at_ = tile_at_ = panel.data + tile_ * tile_bytes + share.first_step * layout.bytes();
    }
  }

  const Panel* panels_;
  const unsigned char *at_, *tile_at_;
  std::int64_t tile_stride_;
  int num_panels_, panel_, stride_, scale_lanes_;
  int tile_, tile_step_, tiles_, left_, num_steps_;
};

// A ring of kSlots steps, of which kSlots - 1 are being copied.
template <int kSlots>
class WeightRing {
 public:
  static constexpr int kBytes = kBlockWarps * kSlots * kMostStepBytes;

  DEVICE void begin(unsigned char* memory, const Panel* panels, int num_panels) {
    slots_ = memory + warp_of_thread() * (kSlots * kMostStepBytes);
    slot_ = 0;
    cursor_.begin(panels, num_panels);
#pragma unroll 1
    for (int i = 0; i < kSlots - 1; ++i) fill(i);
  }

  // The warp's next step, until it takes another one. All lanes take part.
  DEVICE const unsigned char* take() {
    wait_copies<kSlots - 2>(kCopied);
    // All lanes see the step, and have read the one that is replaced now.
    warp_sync(kSlotRead);
    fill(slot_ == 0 ? kSlots - 1 : slot_ - 1);
    const unsigned char* const step = slots_ + slot_ * kMostStepBytes;
    slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
    return step;
  }

  // Waits for all copies: the block's shared memory may belong to another block after its end.
  DEVICE void end() { wait_copies<0>(0); }

  DEVICE int next_panel() const { return cursor_.panel(); }

 private:
  DEVICE void fill(int slot) {
    if (const unsigned char* const from = cursor_.at()) {
      const int at = lane_of_thread() * 16;
      unsigned char* const to = slots_ + slot * kMostStepBytes;
#pragma unroll
      for (int i = 0; i < kBodyBytes; i += 512) copy_async(to + i + at, from + i + at);
      if (lane_of_thread() < cursor_.scale_lanes())
        copy_async(to + kBodyBytes + at, from + kBodyBytes + at);
      cursor_.next();
    }
    commit_copies();
  }

  WeightCursor cursor_;
  unsigned char* slots_;
  int slot_;
};

}  // namespace tensor_ops::decode
