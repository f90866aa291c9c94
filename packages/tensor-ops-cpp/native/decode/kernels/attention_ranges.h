// Units of a step's attention that the threads divide: pairs of a token and a key/value head, and
// ranges of positions.
#pragma once

#include "decode/kernels/attention.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// The work of a step: for each pair of a token and a key/value head, the ranges of positions that
// the token sees. Pairs of one head follow one another, so that tokens of a prompt find its keys in
// the processor's caches. A range begins at a multiple of decode::kAttendedRange, and has sums of
// its own, which are the same whoever computes them.
class Ranges {
 public:
  explicit TENSOR_OPS_INLINE Ranges(const decode::Share& share)
      : share_(share),
        sizes_(share.attributes_as<decode::AttentionNode::Attributes>()),
        pairs_(share.rows * sizes_.kv_heads) {}

  TENSOR_OPS_INLINE const Sizes& sizes() const { return sizes_; }
  TENSOR_OPS_INLINE std::size_t pairs() const { return pairs_; }
  // The row of the node's input and output, and the token of the step whose it is.
  TENSOR_OPS_INLINE std::size_t row(std::size_t pair) const { return pair % share_.rows; }
  TENSOR_OPS_INLINE std::size_t token(std::size_t pair) const {
    const std::size_t at = row(pair);
    return share_.is_selected ? static_cast<std::size_t>(share_.step->selected[at]) : at;
  }
  TENSOR_OPS_INLINE std::size_t kv_head(std::size_t pair) const { return pair / share_.rows; }
  TENSOR_OPS_INLINE std::size_t position(std::size_t pair) const {
    return static_cast<std::size_t>(share_.step->positions[token(pair)]);
  }
  TENSOR_OPS_INLINE std::size_t count(std::size_t pair) const {
    return position(pair) / decode::kAttendedRange - first(pair) + 1;
  }
  TENSOR_OPS_INLINE std::size_t begin(std::size_t pair, std::size_t range) const {
    const std::size_t seen = sizes_.first_seen(position(pair));
    const std::size_t whole = (first(pair) + range) * decode::kAttendedRange;
    return seen > whole ? seen : whole;
  }
  TENSOR_OPS_INLINE std::size_t end(std::size_t pair, std::size_t range) const {
    const std::size_t seen = position(pair) + 1;
    const std::size_t whole = (first(pair) + range + 1) * decode::kAttendedRange;
    return seen < whole ? seen : whole;
  }

  // How many tokens are computed together at the most, so that there is work for all threads.
  TENSOR_OPS_INLINE std::size_t most_together(std::size_t threads) const {
    const std::size_t fit = decode::kMostTogether / sizes_.group();
    const std::size_t each = pairs_ / (kUnitsOfThread * threads);
    const std::size_t most = fit < each ? fit : each;
    return most < 1 ? 1 : most;
  }
  // How many of the tokens whose rows are before `end` are computed together: of one request, at
  // consecutive positions that are in one block, and which see the same ranges.
  TENSOR_OPS_INLINE std::size_t together(std::size_t end, std::size_t most) const {
    std::size_t count = 1;
    while (count < most && count < end && are_neighbours(end - count - 1)) ++count;
    return count;
  }
  TENSOR_OPS_INLINE bool has_neighbours() const {
    for (std::size_t row = 0; row + 1 < share_.rows; ++row)
      if (are_neighbours(row)) return true;
    return false;
  }

 private:
  static constexpr std::size_t kUnitsOfThread = 4;

  // Whether the token of a row and that of the next one may be computed together.
  TENSOR_OPS_INLINE bool are_neighbours(std::size_t row) const {
    const std::size_t next = row + 1;
    return share_.step->slots[token(row)] == share_.step->slots[token(next)] &&
           position(row) + 1 == position(next) && position(next) % kBlock != 0 &&
           first(row) == first(next);
  }
  TENSOR_OPS_INLINE std::size_t first(std::size_t pair) const {
    return sizes_.first_seen(position(pair)) / decode::kAttendedRange;
  }

  const decode::Share& share_;
  const Sizes sizes_;
  const std::size_t pairs_;
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
