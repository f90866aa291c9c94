// A small kernel of the kind that runs a decode step: layers of products in integers, y = W x, in
// one cooperative launch. Every warp reads its part of the weights through a ring of its own in
// shared memory, which it fills ahead, also past the barriers of the grid.
#pragma once

#include "kernels/async_copy.cuh"
#include "kernels/grid.cuh"

namespace tensor_ops {

enum LayerWait : int {
  kPrepared = 1,
  kCopied,
  kSlotRead,
  kJoined,
  kPartsRead,
  kLayer,
  kLastLayerWait = kLayer + kGridWaits - 1,
};

constexpr int kLayerColumns = 256, kLayerRows = kLayerColumns;
constexpr int kChunk = 128;                     // columns of a row that a warp takes at once
constexpr int kSplit = kLayerColumns / kChunk;  // warps that share a row
constexpr int kLayerWarps = 4, kLayerThreads = 32 * kLayerWarps;
constexpr int kSlots = 3;  // chunks of a ring
constexpr int kRingWords = kLayerWarps * kSlots * kChunk;
constexpr int kLayerShared = 4 * (kRingWords + kLayerColumns + kLayerWarps);

struct Layers {
  const int* weights;  // [layer][row][column]
  int* x;              // [2][column]: what a layer reads, and writes for the next one
  unsigned* counter;
  int layers;
};

// The reads of a warp: its chunk of one row in each pass over the rows, then in the next layer.
// Beyond the last row it reads the first one, so that all warps of a block take as many steps.
struct ChunkCursor {
  const Layers* layers;
  int layer = 0, pass = 0;

  DEVICE static int rows_at_once() { return static_cast<int>(gridDim.x) * kLayerWarps / kSplit; }
  DEVICE static int passes() { return (kLayerRows + rows_at_once() - 1) / rows_at_once(); }
  DEVICE static int row(int pass, int warp) {
    const int in_block = kLayerWarps / kSplit;
    return pass * rows_at_once() + static_cast<int>(blockIdx.x) * in_block + warp / kSplit;
  }
  DEVICE const int* chunk() const {
    const int warp = static_cast<int>(threadIdx.x) / 32, wanted = row(pass, warp);
    const int first = (layer * kLayerRows + (wanted < kLayerRows ? wanted : 0)) * kLayerColumns;
    return layers->weights + first + warp % kSplit * kChunk;
  }
  DEVICE void next() {
    if (++pass < passes()) return;
    pass = 0;
    if (++layer == layers->layers) layer = 0;
  }
};

struct ChunkRing {
  ChunkCursor cursor;
  int* slots;
  int slot = 0;

  DEVICE void begin(int* memory) {
    slots = memory + static_cast<int>(threadIdx.x) / 32 * kSlots * kChunk;
    for (int i = 0; i < kSlots - 1; ++i) fill(i);
  }
  DEVICE void fill(int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    copy_async(slots + i * kChunk + lane * 4, cursor.chunk() + lane * 4);
    commit_copies();
    cursor.next();
  }
  DEVICE const int* take() {
    wait_copies<kSlots - 2>(kCopied);
    warp_sync(kSlotRead);  // all lanes see the chunk, and have read the one that is replaced now
    fill((slot + kSlots - 1) % kSlots);
    const int* const chunk = slots + slot * kChunk;
    slot = (slot + 1) % kSlots;
    return chunk;
  }
};

__global__ void run_through_layers(const Layers layers) {
  int* const memory = static_cast<int*>(shared_memory());
  int* const x = memory + kRingWords;
  int* const parts = x + kLayerColumns;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  ChunkRing ring{{&layers}, nullptr};
  ring.begin(memory);
  GridBarrier barrier(layers.counter);
  for (int layer = 0; layer < layers.layers; ++layer) {
    const int* const from = layers.x + layer % 2 * kLayerColumns;
    for (int i = thread; i < kLayerColumns; i += kLayerThreads) x[i] = observe(from + i);
    block_sync(kPrepared);
    for (int pass = 0; pass < ChunkCursor::passes(); ++pass) {
      const int* const chunk = ring.take();
      const int* const own = x + warp % kSplit * kChunk;
      int sum = 0;
      for (int i = lane; i < kChunk; i += 32) sum += chunk[i] * own[i];
      for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
      if (pass > 0) block_sync(kPartsRead);
      if (lane == 0) parts[warp] = sum;
      block_sync(kJoined);
      if (thread < kLayerWarps / kSplit) {
        const int row = ChunkCursor::row(pass, thread * kSplit);
        int total = 0;
        for (int i = 0; i < kSplit; ++i) total += parts[thread * kSplit + i];
        // Small enough for the next layer.
        if (row < kLayerRows)
          publish(layers.x + (1 - layer % 2) * kLayerColumns + row, total % 1000);
      }
    }
    barrier.arrive(kLayer);
    barrier.wait(kLayer);
  }
}

}  // namespace tensor_ops
