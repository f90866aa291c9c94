// The numbers of all waits of the kernel of decode steps.
#pragma once

#include "kernels/grid.cuh"

namespace tensor_ops::decode {

enum Wait : int {
  kStepBegins = 1,  // of the block, for its copy of the tokens
  kTokensChosen,    // of the block, for the next tokens, and whether there are any
  kCopied,          // of a warp, for its next step of weights
  kSlotRead,        // of a warp, before copies replace what its lanes have read
  kSquares,         // of the block, for the sums of squares of its warps
  kMeasured,        // of the block, for what rows are divided by
  kPrepared,        // of the block, for the activations
  kPartsWritten,    // of the block, for the sums of the warps that share a tile
  kQueries,         // of the block, for the queries that it attends with
  kSpanWritten,     // of the block, for what its warps have of a span
  kBestOfWarps,     // of the block, for the best logits of its warps
  kPhase,           // of the grid, after each phase
  kWaitsEnd = kPhase + kGridWaits,
};

}  // namespace tensor_ops::decode
