// The table of tensor_ops/abi.h, which every backend with native code fills in the same way.
#pragma once

#include <string>

#include "abi/caller_array.h"
#include "abi/guarded.h"
#include "checks/array_checks.h"
#include "declaration/errors.h"
#include "declaration/op_call.h"
#include "declaration/registry.h"
#include "tensor_ops/abi.h"

namespace tensor_ops {

// A call whose arrays are checked, all but where they lie. All outputs are given.
struct InterfaceCall : CallArguments<CallerArray> {
  int num_threads = 0;  // 0: as many as pay
  void* stream = nullptr;
};

// What a backend defines, in library/. All but the first two may throw the errors of
// declaration/errors.h.
struct BackendParts {
  const char* name;
  const char* display_name;
  const char* version;
  std::string (*configuration)();
  const char* (*unavailable_reason)();  // null where the backend can be used
  int (*device_count)();
  void (*device)(int index, tensor_ops_device& device);
  void (*check_devices)(const Op& op, const InterfaceCall& call);
  void (*run)(const OpCall& call, const InterfaceCall& given);
  int (*num_threads)();
  void (*set_num_threads)(int count);
  const tensor_ops_decode* decode;  // may be null
};

// What a library's one exported function does.
tensor_ops_status get_backend(const BackendParts& parts, std::uint32_t abi_version,
                              const tensor_ops_backend** backend, tensor_ops_error* error);

}  // namespace tensor_ops
