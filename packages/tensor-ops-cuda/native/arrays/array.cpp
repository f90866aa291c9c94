#include "arrays/array.h"

#include <algorithm>

#include "declaration/errors.h"

namespace tensor_ops {

void View::set_axes(int count, const std::int64_t* lengths, const std::int64_t* steps,
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

std::string problem_of_lengths(int dims, const std::int64_t* lengths, std::int64_t item_size) {
  const std::int64_t* const end = lengths + dims;
  if (std::any_of(lengths, end, [](std::int64_t length) { return length < 0; }))
    return text("has a negative length: ", shape_text(dims, lengths));
  if (std::find(lengths, end, 0) != end) return {};
  for (const std::int64_t* length = lengths; length != end; ++length)
    if (__builtin_mul_overflow(item_size, *length, &item_size))
      return text("is more than fits into memory: ", shape_text(dims, lengths));
  return {};
}

void read_tensor(const char* op, const char* name, const dlpack::DLTensor& tensor, View& view) {
  if (tensor.ndim > kMaxDims)
    throw ValueError(text(op, ": ", name, " has ", tensor.ndim, " axes; the most are ", kMaxDims));
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = dlpack::dtype_of(tensor.dtype);
  view.is_read_only = false;
  const std::int64_t item = tensor.dtype.bits / 8;
  const std::string problem = problem_of_lengths(tensor.ndim, tensor.shape, item);
  if (!problem.empty()) throw ValueError(text(op, ": ", name, "'s shape ", problem));
  view.set_axes(tensor.ndim, tensor.shape, tensor.strides, item);
}

std::string dtype_text(const Array& array) {
  if (array.dtype != kDTypes && array.source != Source::kNumPy) return kDTypeNames[array.dtype];
  return dtype_attribute_text(array.object);
}

std::string device_text(int device) {
  return device == kHost ? "in host memory" : text("on cuda:", device);
}

}  // namespace tensor_ops
