// Parts that the extension modules of all native backends have.
#pragma once

#include "binding/python/nanobind.h"
#include "tensor_ops/abi.h"

namespace tensor_ops {

// Imports NumPy's C API, makes nanobind translate our errors, and adds the ops, the dict `ops` of
// those that are public, the tuple `dtypes` and `__version__`.
void add_ops(nanobind::module_& module, const char* version);

// The compiled configuration, as the table of the C interface says it.
const char* configuration_of(tensor_ops_get_backend* entry);

// The state of a pool of memory, as pool_info() returns it.
template <class State>
nanobind::dict pool_dict(const State& state) {
  nanobind::dict info;
  info["limit"] = state.limit;
  info["held_bytes"] = state.held_bytes;
  info["held_blocks"] = state.held_blocks;
  info["used_bytes"] = state.used_bytes;
  info["used_blocks"] = state.used_blocks;
  info["hits"] = state.hits;
  info["misses"] = state.misses;
  return info;
}

// None for an empty text.
nanobind::object text_or_none(const std::string& text);

}  // namespace tensor_ops
