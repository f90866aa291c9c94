#include "arrays/array.h"

#include <algorithm>

#include "declaration/errors.h"

namespace tensor_ops {

std::string problem_of_lengths(int dims, const std::int64_t* lengths, std::int64_t item_size) {
  const std::int64_t* const end = lengths + dims;
  if (std::any_of(lengths, end, [](std::int64_t length) { return length < 0; }))
    return text("has a negative length: ", shape_text(dims, lengths));
  if (fits_into_memory(dims, lengths, item_size)) return {};
  return text("is more than fits into memory: ", shape_text(dims, lengths));
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
