#include "launch/host_copy.h"

#include <algorithm>
#include <cstring>

#include "launch/copy_threads.h"

namespace tensor_ops {
namespace {

// Fewer bytes are copied in less time than it takes to start another thread on them.
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
void for_each_run(const StridedArea& area, std::int64_t begin, std::int64_t end, Copy copy) {
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
void for_each_run_in_parallel(const StridedArea& area, Copy copy) {
  run_in_parallel(
      area.count(), kLeastBytes / area.item_size,
      [&](std::int64_t begin, std::int64_t end) { for_each_run(area, begin, end, copy); });
}

}  // namespace

void pack(const StridedArea& from, char* to) {
  const std::int64_t item = from.item_size, step = from.stride[from.axes - 1];
  for_each_run_in_parallel(from, [=](const char* run, std::int64_t first, std::int64_t count) {
    copy_run(to + first * item, item, run, step, item, count);
  });
}

void unpack(const char* from, const StridedArea& to) {
  const std::int64_t item = to.item_size, step = to.stride[to.axes - 1];
  for_each_run_in_parallel(to, [=](char* run, std::int64_t first, std::int64_t count) {
    copy_run(run, step, from + first * item, item, item, count);
  });
}

}  // namespace tensor_ops
