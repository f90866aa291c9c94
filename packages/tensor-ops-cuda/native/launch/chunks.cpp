#include "launch/chunks.h"

#include <algorithm>

namespace tensor_ops {

Chunks::Chunks(const Problem& problem, std::int64_t most_rows) : problem_(problem) {
  axis_ = std::max(0, problem.axes - 1);
  if (problem.axes == 0) return;
  while (axis_ > 0 && inner_ * problem.extent[axis_] <= most_rows)
    inner_ *= problem.extent[axis_--];
  const std::int64_t extent = problem.extent[axis_];
  step_ = std::clamp<std::int64_t>(most_rows / inner_, 1, extent);
  // Parts of nearly the same size.
  const std::int64_t parts = (extent + step_ - 1) / step_;
  step_ = (extent + parts - 1) / parts;
  count_ = (extent + step_ - 1) / step_;
  for (int d = 0; d < axis_; ++d) count_ *= problem.extent[d];
}

Box Chunks::box(std::int64_t chunk) const {
  Box box = whole(problem_);
  if (problem_.axes == 0) return box;
  const std::int64_t extent = problem_.extent[axis_], parts = (extent + step_ - 1) / step_;
  box.begin[axis_] = chunk % parts * step_;
  box.extent[axis_] = std::min(step_, extent - box.begin[axis_]);
  std::int64_t rest = chunk / parts;
  for (int d = axis_ - 1; d >= 0; --d) {
    box.begin[d] = rest % problem_.extent[d];
    box.extent[d] = 1;
    rest /= problem_.extent[d];
  }
  return box;
}

}  // namespace tensor_ops
