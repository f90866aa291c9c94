#include "arrays/array.h"

#include "declaration/errors.h"

namespace tensor_ops {
bool View::is_contiguous() const {
  if (size() == 0) return true;
  auto step = static_cast<std::int64_t>(kItemSizes[dtype]);
  for (int d = dims - 1; d >= 0; --d) {
    if (shape[d] != 1 && stride[d] != step) return false;
    step *= shape[d];
  }
  return true;
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
  view.dims = tensor.ndim;
  const std::int64_t item = tensor.dtype.bits / 8;
  std::int64_t step = item;
  for (int d = tensor.ndim - 1; d >= 0; --d) {
    view.shape[d] = tensor.shape[d];
    view.stride[d] = tensor.strides ? tensor.strides[d] * item : step;
    step *= tensor.shape[d];
  }
}

std::string dtype_text(const Array& array) {
  if (array.view.dtype != kDTypes && array.source != Source::kNumPy)
    return kDTypeNames[array.view.dtype];
  return dtype_attribute_text(array.object);
}

std::string device_text(int device) {
  return device == kHost ? "in host memory" : text("on cuda:", device);
}

}  // namespace tensor_ops
