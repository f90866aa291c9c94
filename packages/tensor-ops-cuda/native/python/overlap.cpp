#include "python/overlap.h"

#include <algorithm>
#include <cstdlib>

#include "launch/errors.h"
#include "python/checks.h"
#include "python/shared_memory.h"

namespace tensor_ops {
namespace {

bool is_same_view(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.dims != b.dims ||
      !std::equal(a.shape, a.shape + a.dims, b.shape))
    return false;
  for (int d = 0; d < a.dims; ++d)
    if (a.shape[d] > 1 && a.stride[d] != b.stride[d]) return false;
  return true;
}

// Every axis, in order of stride, must step over all that the shorter strides reach. Layouts that
// fail this without two elements sharing memory exist, but nobody makes them to write into.
bool may_overlap_itself(const View& view) {
  if (view.size() == 0 || view.is_contiguous()) return false;
  int axis[kMaxDims], axes = 0;
  for (int d = 0; d < view.dims; ++d)
    if (view.shape[d] > 1) axis[axes++] = d;
  const auto step = [&view](int d) { return std::abs(view.stride[d]); };
  std::sort(axis, axis + axes, [&](int a, int b) { return step(a) < step(b); });
  auto reach = static_cast<std::int64_t>(kItemSizes[view.dtype]);
  for (int i = 0; i < axes; ++i) {
    if (step(axis[i]) < reach) return true;
    reach += (view.shape[axis[i]] - 1) * step(axis[i]);
  }
  return false;
}

void check_against_inputs(const Op& op, const CheckedCall& call, std::size_t i) {
  const View& out = call.out[i].view;
  for (int k = 0; k < call.arrays; ++k) {
    if (!call.array[k].object) continue;
    const View& input = call.array[k].view;
    const bool may_be_input = call.kind[k] == Kind::kRows;
    if (may_be_input && is_same_view(out, input)) continue;
    if (may_share_memory(out, input))
      throw ValueError(text(op.name, ": ", output_name(op, i), " overlaps ", call.name[k],
                            may_be_input ? " without being exactly the same view" : "",
                            "; give an array of its own memory"));
  }
}

}  // namespace

void check_overlap(const Op& op, const CheckedCall& call) {
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (may_overlap_itself(call.out[i].view))
      throw ValueError(
          text(op.name, ": ", output_name(op, i),
               " overlaps itself (several elements share memory); give an array made by "
               "numpy.empty"));
    check_against_inputs(op, call, i);
  }
  if (op.outputs.size() == 2 && may_share_memory(call.out[0].view, call.out[1].view))
    throw ValueError(text(op.name, ": out[0] and out[1] overlap; give two separate arrays"));
}

}  // namespace tensor_ops
