// How an array of a call lies along the axes of x, the call's first array, and which of those axes
// are walked as one. Backends describe an array by an Operand of their own, which has
//
//     char* data;           null for an optional array that was not given
//     DType dtype;
//     item_size()           bytes of an element
//     bool is_output;
//     length                elements in a row
//     element_stride        bytes from one element of a row to the next
//     stride[kMaxDims]      bytes along each leading axis of x; 0 where the array repeats
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "declaration/array_view.h"
#include "declaration/op_call.h"

namespace tensor_ops {

// Sets `data` and the strides, which are those of one contiguous row that repeats until then. The
// array's axes are x's last ones; axes that it lacks, or that have length 1 there, repeat.
template <class Operand>
void take_strides(Operand& operand, const ArrayView& array, int leading_axes) {
  operand.data = array.data;
  const int last = array.dims - 1, offset = leading_axes - last;
  for (int d = 0; d < last; ++d)
    if (array.shape[d] != 1) operand.stride[d + offset] = array.strides[d];
  if (operand.length > 1)
    operand.element_stride = last < 0 || array.shape[last] == 1 ? 0 : array.strides[last];
}

// The operands of a call's arrays, in their order, where x has rows of n elements.
template <class Operand, class Extent>
void make_operands(const OpCall& call, Extent n, int leading_axes, Operand* operand, int operands) {
  for (int k = 0; k < operands; ++k, ++operand) {
    const ArrayView* const array = call.array[k];
    operand->data = nullptr;
    operand->dtype = array ? array->dtype : call.array[0]->dtype;
    operand->is_output = k >= call.inputs;
    const bool is_half = !operand->is_output && call.kind[k] == ParameterKind::kHalfRows;
    operand->length = is_half ? n / 2 : n;
    operand->element_stride = operand->item_size();
    std::fill_n(operand->stride, leading_axes, 0);
    if (array) take_strides(*operand, *array, leading_axes);
  }
}

// Kernels take such rows as they are: they are contiguous and aligned.
template <class Operand>
bool is_direct(const Operand& operand, int leading_axes) {
  const auto item = operand.item_size();
  return (operand.length <= 1 || operand.element_stride == item) &&
         reinterpret_cast<std::uintptr_t>(operand.data) % static_cast<std::size_t>(item) == 0 &&
         std::all_of(operand.stride, operand.stride + leading_axes,
                     [=](auto stride) { return stride % item == 0; });
}

// Drops leading axes of length 1, and makes one of neighbouring axes that every operand walks as
// one. Returns how many axes are left.
template <class Extent, class Operand>
int merge_axes(Extent* extent, int axes, Operand* operand, int operands) {
  const auto drop = [&](int axis) {
    --axes;
    for (int d = axis; d < axes; ++d) {
      extent[d] = extent[d + 1];
      for (int k = 0; k < operands; ++k) operand[k].stride[d] = operand[k].stride[d + 1];
    }
  };
  for (int d = axes - 1; d >= 0; --d)
    if (extent[d] == 1) drop(d);
  for (int d = axes - 2; d >= 0; --d) {
    const auto inner = static_cast<std::ptrdiff_t>(extent[d + 1]);
    const bool are_one = std::all_of(operand, operand + operands, [=](const Operand& each) {
      return each.stride[d] == inner * each.stride[d + 1];
    });
    if (!are_one) continue;
    extent[d + 1] *= extent[d];
    drop(d);
  }
  return axes;
}

// For elementwise ops, after merge_axes(): makes one row of the rows along the last leading axis
// where they follow one another in every operand. Changes n, the length of a row, and returns how
// many axes are left.
template <class Extent, class Operand>
int merge_rows(Extent& n, const Extent* extent, int axes, Operand* operand, int operands) {
  if (axes == 0) return axes;
  const int last = axes - 1;
  const auto length = static_cast<std::ptrdiff_t>(n);
  const bool are_one = std::all_of(operand, operand + operands, [=](const Operand& each) {
    return !each.data || (static_cast<std::ptrdiff_t>(each.length) == length &&
                          each.stride[last] == length * each.element_stride);
  });
  if (!are_one) return axes;
  n *= extent[last];
  for (int k = 0; k < operands; ++k) operand[k].length = n;
  return last;
}

}  // namespace tensor_ops
