#include "arrays/array.h"

#include "launch/errors.h"

namespace tensor_ops {
namespace {

// str(object.dtype), which every array library has.
std::string dtype_attribute_text(PyObject* object) {
  const Owned dtype(PyObject_GetAttrString(object, "dtype"));
  const Owned str(dtype ? PyObject_Str(dtype.get()) : nullptr);
  const char* utf8 = str ? PyUnicode_AsUTF8(str.get()) : nullptr;
  if (utf8) return utf8;
  PyErr_Clear();
  return "another dtype";
}

}  // namespace

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

DType dtype_of(dlpack::DataType dtype) {
  if (dtype.lanes != 1) return kDTypes;
  if (dtype.code == dlpack::kBfloat) return dtype.bits == 16 ? kBFloat16 : kDTypes;
  if (dtype.code != dlpack::kFloat) return kDTypes;
  return dtype.bits == 32   ? kFloat32
         : dtype.bits == 16 ? kFloat16
         : dtype.bits == 64 ? kFloat64
                            : kDTypes;
}

dlpack::DataType dlpack_dtype(DType dtype) {
  return {dtype == kBFloat16 ? dlpack::kBfloat : dlpack::kFloat,
          static_cast<std::uint8_t>(8 * kItemSizes[dtype]), 1};
}

void read_tensor(const char* op, const char* name, const dlpack::Tensor& tensor, View& view) {
  if (tensor.ndim > kMaxDims)
    throw ValueError(text(op, ": ", name, " has ", tensor.ndim, " axes; the most are ", kMaxDims));
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = dtype_of(tensor.dtype);
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

std::string shape_text(int dims, const std::int64_t* shape) {
  std::string result = "(";
  for (int d = 0; d < dims; ++d)
    result += text(shape[d], d + 1 < dims ? ", " : dims == 1 ? "," : "");
  return result + ")";
}

std::string device_text(int device) {
  return device == kHost ? "in host memory" : text("on cuda:", device);
}

}  // namespace tensor_ops
