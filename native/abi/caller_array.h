// An array that a caller of the C interface gave, as checks/array_checks.h describes arrays.
#pragma once

#include <cstddef>
#include <string>

#include "declaration/declaration.h"
#include "declaration/dtype.h"
#include "tensor_ops/abi.h"

namespace tensor_ops {

class CallerArray {
 public:
  bool is_output = false;

  // Throws ValueError, naming op and argument, for what cannot be an array in memory.
  void read(const char* op, const char* name, const tensor_ops_array& given);

  bool is_given() const { return given_ != nullptr; }
  bool is_numpy() const { return false; }
  DType dtype() const { return dtype_; }
  int dims() const { return given_->dims; }
  const std::ptrdiff_t* shape() const { return shape_; }
  const std::ptrdiff_t* strides() const { return strides_; }  // bytes
  char* data() const { return static_cast<char*>(given_->data); }
  bool is_contiguous() const { return is_contiguous_; }
  std::size_t size() const { return size_; }

  tensor_ops_device_kind device_kind() const { return given_->device_kind; }
  int device_index() const { return given_->device_index; }
  int dtype_number() const { return given_->dtype; }

 private:
  const tensor_ops_array* given_ = nullptr;
  DType dtype_ = kDTypes;  // that of no supported number
  bool is_contiguous_ = false;
  std::size_t size_ = 0;
  std::ptrdiff_t shape_[kMaxDims], strides_[kMaxDims];
};

std::string dtype_text(const CallerArray& array);

}  // namespace tensor_ops
