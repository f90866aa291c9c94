// The table of tensor_ops/abi.h, which every backend with native code fills in the same way.
#pragma once

#include <cstddef>
#include <string>

#include "abi/guarded.h"
#include "checks/array_checks.h"
#include "declaration/errors.h"
#include "declaration/op_call.h"
#include "declaration/registry.h"
#include "declaration/strided_view.h"
#include "tensor_ops/abi.h"

namespace tensor_ops {

// An array that a caller of the C interface gave, as checks/array_checks.h describes arrays.
class CallerArray : public StridedView {
 public:
  bool is_output = false;

  // Throws ValueError, naming op and argument, for what cannot be an array in memory.
  void read(const char* op, const char* name, const tensor_ops_array& given);

  bool is_given() const { return given_ != nullptr; }
  bool is_numpy() const { return false; }

  tensor_ops_device_kind device_kind() const { return given_->device_kind; }
  int device_index() const { return given_->device_index; }
  int dtype_number() const { return given_->dtype; }

 private:
  const tensor_ops_array* given_ = nullptr;
};

std::string dtype_text(const CallerArray& array);

// A call whose arrays are checked, all but where they lie. All outputs are given.
struct InterfaceCall : CallArguments<CallerArray> {
  int num_threads = 0;  // 0: as many as pay
  void* stream = nullptr;
};

// The functions and names that a backend defines, in library/. All but the first two may throw the
// errors of declaration/errors.h.
struct BackendParts {
  const char* name;
  const char* display_name;
  const char* version;
  std::string (*configuration)();
  const char* (*unavailable_reason)();  // null where the backend can be used
  int (*device_count)();
  void (*device)(int index, tensor_ops_device& device);
  void (*check_devices)(const Op& op, const InterfaceCall& call);
  void (*run)(const OpCall& call, const InterfaceCall& given);  // x may be empty
  int (*num_threads)();
  void (*set_num_threads)(int count);
  const tensor_ops_decode* decode;  // may be null
};

// The body of a library's one exported function.
tensor_ops_status get_backend(const BackendParts& parts, std::uint32_t abi_version,
                              const tensor_ops_backend** backend, tensor_ops_error* error);

}  // namespace tensor_ops
