// A view with a shape and strides of its own, read from those of a caller or of another library.
#pragma once

#include <algorithm>
#include <cstdint>

#include "declaration/array_view.h"
#include "declaration/declaration.h"

namespace tensor_ops {

// Whether an array of these lengths, none of them negative, has no more bytes than can be counted.
inline bool fits_into_memory(int dims, const std::int64_t* lengths, std::int64_t item_size) {
  const std::int64_t* const end = lengths + dims;
  if (std::find(lengths, end, 0) != end) return true;
  return std::all_of(lengths, end, [&](std::int64_t length) {
    return !__builtin_mul_overflow(item_size, length, &item_size);
  });
}

class StridedView : public ArrayView {
 public:
  StridedView() = default;
  StridedView(const StridedView&) = delete;
  StridedView& operator=(const StridedView&) = delete;

  // To be called once the dtype is known, with at most kMaxDims lengths that fit into memory.
  // Strides are in units of `unit` bytes. Without strides the array is C-contiguous with elements
  // of that size.
  void set_axes(int count, const std::int64_t* lengths, const std::int64_t* steps,
                std::int64_t unit) {
    dims = count;
    shape = own_shape_;
    strides = own_strides_;
    is_contiguous = true;
    const bool has_item_size = steps && dtype != kDTypes;
    // Unsigned, since the product of the other lengths of an empty array may overflow.
    std::uint64_t step = has_item_size ? item_size() : static_cast<std::uint64_t>(unit);
    for (int d = dims - 1; d >= 0; --d) {
      const auto given = steps ? static_cast<std::uint64_t>(steps[d]) : 0;
      own_shape_[d] = static_cast<std::ptrdiff_t>(lengths[d]);
      own_strides_[d] =
          static_cast<std::ptrdiff_t>(steps ? given * static_cast<std::uint64_t>(unit) : step);
      is_contiguous =
          is_contiguous && (shape[d] == 1 || static_cast<std::uint64_t>(strides[d]) == step);
      step *= static_cast<std::uint64_t>(lengths[d]);
    }
    is_contiguous = is_contiguous || size() == 0;
  }

 private:
  std::ptrdiff_t own_shape_[kMaxDims], own_strides_[kMaxDims];
};

}  // namespace tensor_ops
