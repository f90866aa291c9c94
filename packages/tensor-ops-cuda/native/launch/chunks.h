// Cutting a host call into parts of its leading axes.
#pragma once

#include "launch/area.h"

namespace tensor_ops {

// Boxes of at most `most_rows` rows that cover a problem, in order. A box has whole inner axes,
// some steps of one axis, and a single step of each axis outside of it.
class Chunks {
 public:
  Chunks(const Problem& problem, std::int64_t most_rows);

  std::int64_t count() const { return count_; }
  // Rows of the largest box.
  std::int64_t most_rows() const { return step_ * inner_; }
  Box box(std::int64_t chunk) const;

 private:
  const Problem& problem_;
  int axis_ = 0;  // the one that is cut
  std::int64_t step_ = 1, inner_ = 1, count_ = 1;
};

}  // namespace tensor_ops
