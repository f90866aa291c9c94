// An array that a caller of the C interface gave, as checks/array_checks.h describes arrays.
#pragma once

#include <cstddef>
#include <string>

#include "declaration/array_view.h"
#include "declaration/declaration.h"
#include "tensor_ops/abi.h"

namespace tensor_ops {

class CallerArray : public ArrayView {
 public:
  bool is_output = false;

  CallerArray() = default;
  CallerArray(const CallerArray&) = delete;
  CallerArray& operator=(const CallerArray&) = delete;

  // Throws ValueError, naming op and argument, for what cannot be an array in memory.
  void read(const char* op, const char* name, const tensor_ops_array& given);

  bool is_given() const { return given_ != nullptr; }
  bool is_numpy() const { return false; }

  tensor_ops_device_kind device_kind() const { return given_->device_kind; }
  int device_index() const { return given_->device_index; }
  int dtype_number() const { return given_->dtype; }

 private:
  const tensor_ops_array* given_ = nullptr;
  std::ptrdiff_t own_shape_[kMaxDims], own_strides_[kMaxDims];
};

std::string dtype_text(const CallerArray& array);

}  // namespace tensor_ops
