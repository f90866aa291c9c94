#include "launch/area.h"

#include <algorithm>

namespace tensor_ops {
Box whole(const Problem& problem) {
  Box box;
  std::fill_n(box.begin, problem.axes, 0);
  std::copy_n(problem.extent, problem.axes, box.extent);
  return box;
}

std::int64_t StridedArea::count() const {
  std::int64_t count = 1;
  for (int d = 0; d < axes; ++d) count *= extent[d];
  return count;
}

void add_axis(StridedArea& area, std::int64_t extent, std::int64_t stride) {
  int last = area.axes - 1;
  if (last >= 0 && extent == 1) return;
  if (last >= 0 && area.extent[last] > 1 && area.stride[last] == extent * stride) {
    area.extent[last] *= extent;
    area.stride[last] = stride;
    return;
  }
  if (last < 0 || area.extent[last] > 1) last = area.axes++;
  area.extent[last] = extent;
  area.stride[last] = stride;
}

StridedArea area_of(const Problem& problem, const Operand& operand, const Box& box) {
  StridedArea area{operand.data, operand.item_size(), 0, {}, {}};
  for (int d = 0; d < problem.axes; ++d) {
    area.data += box.begin[d] * operand.stride[d];
    if (!repeats(problem, operand, d)) add_axis(area, box.extent[d], operand.stride[d]);
  }
  add_axis(area, operand.length, operand.element_stride);
  return area;
}

}  // namespace tensor_ops
