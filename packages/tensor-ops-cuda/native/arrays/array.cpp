#include "arrays/array.h"

#include "declaration/errors.h"

namespace tensor_ops {

void View::set_axes(int count, const std::int64_t* lengths, const std::int64_t* steps,
                    std::int64_t unit) {
  dims = count;
  shape = own_shape_;
  strides = own_strides_;
  is_contiguous = true;
  const bool has_item_size = steps && dtype != kDTypes;
  std::int64_t step = has_item_size ? static_cast<std::int64_t>(item_size()) : unit;
  for (int d = dims - 1; d >= 0; --d) {
    own_shape_[d] = static_cast<std::ptrdiff_t>(lengths[d]);
    own_strides_[d] = static_cast<std::ptrdiff_t>(steps ? steps[d] * unit : step);
    is_contiguous = is_contiguous && (shape[d] == 1 || strides[d] == step);
    step *= lengths[d];
  }
  is_contiguous = is_contiguous || size() == 0;
}

Lease::~Lease() {
  if (plain_ && plain_->deleter) plain_->deleter(plain_);
  if (versioned_ && versioned_->deleter) versioned_->deleter(versioned_);
}

void read_tensor(const char* op, const char* name, const dlpack::Tensor& tensor, View& view) {
  if (tensor.ndim > kMaxDims)
    throw ValueError(text(op, ": ", name, " has ", tensor.ndim, " axes; the most are ", kMaxDims));
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = dlpack::dtype_of(tensor.dtype);
  view.is_read_only = false;
  view.set_axes(tensor.ndim, tensor.shape, tensor.strides, tensor.dtype.bits / 8);
}

std::string dtype_text(const Array& array) {
  if (array.dtype != kDTypes && array.source != Source::kNumPy) return kDTypeNames[array.dtype];
  return dtype_attribute_text(array.object);
}

std::string device_text(int device) {
  return device == kHost ? "in host memory" : text("on cuda:", device);
}

}  // namespace tensor_ops
