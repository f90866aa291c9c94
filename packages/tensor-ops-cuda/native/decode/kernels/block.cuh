// State that the threads of a block share while they run the phases of a step.
#pragma once

#include "decode/kernels/activations.cuh"
#include "decode/kernels/attention.cuh"
#include "decode/kernels/choice.cuh"
#include "decode/kernels/product.cuh"
#include "kernels/thread_group.cuh"

namespace tensor_ops::decode {

template <class T>
constexpr T greater(T a, T b) {
  return a > b ? a : b;
}
constexpr int kPreparedBytes = greater(kIntegerBytes, kFloatBytes);

// A block's shared memory, behind the ring.
struct BlockMemory {
  alignas(16) unsigned char activations[greater(kPreparedBytes, kAttentionBytes)];
  PartialSums partial;
  GroupMemory group;
  double scales[kMostTokens];  // of normalised rows
  Best best[kBlockWarps][kMostTokens];
  int tokens[kMostTokens], positions[kMostTokens];
  int has_ended[kMostTokens];  // or not
  bool gave_up;
};

// The threads of a block as a group that adds up squares.
struct SquareThreads {
  DEVICE int lane() const { return static_cast<int>(threadIdx.x); }
  DEVICE int lanes() const { return kBlockThreads; }
  DEVICE void wait() const { block_sync(kSquares); }
};
using SquareGroup = ThreadGroup<SquareThreads>;

// The parameters of a kernel: the slots of its rings, and the units that multiply.
template <int kSlots_, class Sums_>
struct Kernel {
  static constexpr int kSlots = kSlots_;
  using Sums = Sums_;
  using Activations = typename Sums::Activations;
};

template <class Kernel>
struct Block {
  const Steps& steps;
  BlockMemory& memory;
  WeightRing<Kernel::kSlots>& ring;
  int turn;  // of the partial sums
  Best best;
};

// The row of a value in which a phase finds its own row.
DEVICE int row_in(const Steps& steps, bool is_selected, int row) {
  return is_selected ? steps.selected[row] : row;
}

DEVICE int rows_of(const Steps& steps, const DevicePhase& phase) {
  return phase.is_selected ? steps.num_selected : steps.num_tokens;
}

}  // namespace tensor_ops::decode
