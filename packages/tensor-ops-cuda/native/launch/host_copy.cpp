#include "launch/host_copy.h"

#include <algorithm>
#include <cstring>

#include "launch/copy_threads.h"

namespace tensor_ops {
namespace {

// What one thread should have to copy at least, for another to pay.
constexpr std::int64_t kLeastBytes = 1 << 20;

template <std::size_t kItem>
void copy_items(char* to, std::int64_t to_step, const char* from, std::int64_t from_step,
                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_step, from + i * from_step, kItem);
}

void copy_run(char* to, std::int64_t to_step, const char* from, std::int64_t from_step,
              std::int64_t item_size, std::int64_t count) {
  if (to_step == item_size && from_step == item_size)
    std::memcpy(to, from, static_cast<std::size_t>(count * item_size));
  else if (item_size == 2)
    copy_items<2>(to, to_step, from, from_step, count);
  else if (item_size == 4)
    copy_items<4>(to, to_step, from, from_step, count);
  else
    copy_items<8>(to, to_step, from, from_step, count);
}

// Calls copy(address in the area, index of the first element, count) for runs of the last axis that
// make up the elements [begin, end).
template <class Copy>
void for_each_run(const HostArea& area, std::int64_t begin, std::int64_t end, Copy copy) {
  const int last = area.axes - 1;
  std::int64_t at[kMaxDims + 1];
  char* data = area.data;
  std::int64_t rest = begin;
  for (int d = last; d >= 0; --d) {
    at[d] = rest % area.extent[d];
    rest /= area.extent[d];
    data += at[d] * area.stride[d];
  }
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t count = std::min(end - i, area.extent[last] - at[last]);
    copy(data, i, count);
    i += count;
    data -= at[last] * area.stride[last];
    at[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      data += area.stride[d];
      if (++at[d] < area.extent[d]) break;
      data -= at[d] * area.stride[d];
      at[d] = 0;
    }
  }
}

template <class Copy>
void for_each_run_in_parts(const HostArea& area, Copy copy) {
  const std::int64_t item = area.item_size;
  if (area.axes == 0) return copy(area.data, 0, 1, item);
  const std::int64_t step = area.stride[area.axes - 1];
  in_parts(area.count(), kLeastBytes / item, [&](std::int64_t begin, std::int64_t end) {
    for_each_run(area, begin, end, [&](char* data, std::int64_t first, std::int64_t count) {
      copy(data, first, count, step);
    });
  });
}

}  // namespace

Box whole(const Problem& problem) {
  Box box;
  std::fill_n(box.begin, problem.axes, 0);
  std::copy_n(problem.extent, problem.axes, box.extent);
  return box;
}

void add_axis(HostArea& area, std::int64_t extent, std::int64_t stride) {
  if (extent == 1) return;
  const int last = area.axes - 1;
  if (last >= 0 && area.stride[last] == extent * stride) {
    area.extent[last] *= extent;
    area.stride[last] = stride;
    return;
  }
  area.extent[area.axes] = extent;
  area.stride[area.axes++] = stride;
}

std::int64_t HostArea::count() const {
  std::int64_t count = 1;
  for (int d = 0; d < axes; ++d) count *= extent[d];
  return count;
}

bool HostArea::is_contiguous() const { return axes == 0 || (axes == 1 && stride[0] == item_size); }

HostArea area_of(const Problem& problem, const Operand& operand, const Box& box) {
  HostArea area{operand.data, operand.item_size(), 0, {}, {}};
  for (int d = 0; d < problem.axes; ++d) {
    area.data += box.begin[d] * operand.stride[d];
    if (!repeats(problem, operand, d)) add_axis(area, box.extent[d], operand.stride[d]);
  }
  add_axis(area, operand.length, operand.element_stride);
  return area;
}

void pack(const HostArea& from, char* to) {
  const std::int64_t item = from.item_size;
  for_each_run_in_parts(
      from, [=](const char* data, std::int64_t first, std::int64_t count, std::int64_t step) {
        copy_run(to + first * item, item, data, step, item, count);
      });
}

void unpack(const char* from, const HostArea& to) {
  const std::int64_t item = to.item_size;
  for_each_run_in_parts(to,
                        [=](char* data, std::int64_t first, std::int64_t count, std::int64_t step) {
                          copy_run(data, step, from + first * item, item, item, count);
                        });
}

}  // namespace tensor_ops
