// What comes of looking for a backend: the backend, available or not, or why there is none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor_ops/backend/backend.h"
#include "tensor_ops/backend/detail/library.h"
#include "tensor_ops/backend/detail/search.h"
#include "tensor_ops/backend/names.h"

namespace tensor_ops::backend::detail {

struct FoundBackend {
  std::unique_ptr<Backend> backend;  // null where there is no library
  std::string not_found = {};        // why that is

  bool has_table() const { return backend != nullptr && backend->abi() != nullptr; }
  // Whether its library is there and cannot be used, on whatever machine.
  bool is_broken() const { return backend != nullptr && backend->abi() == nullptr; }
};

// The kind of device that an available backend computes on, empty if it does not tell.
inline std::string kind_of(const FoundBackend& found) {
  try {
    const auto devices = found.backend->devices();
    if (devices.empty()) return "";
    return devices.front().device.kind == TENSOR_OPS_CPU ? "cpu" : "gpu";
  } catch (const Error&) {
    return "";  // its calls will say what is wrong with the device
  }
}

// Why a backend cannot run on a kind of device, or on any where that is empty; nothing if it can.
inline std::optional<std::string> reason_against(const FoundBackend& found,
                                                 const std::string& kind) {
  const std::string reason =
      found.backend == nullptr ? found.not_found : found.backend->unavailable_reason();
  if (!reason.empty()) return reason;
  const std::string known = kind.empty() ? "" : kind_of(found);
  if (known == kind) return std::nullopt;
  return "its device is " + (known.empty() ? "of a kind that it does not tell" : known) + ", not " +
         kind;
}

// Looks for the library of a backend, and loads it. The first one that is found decides.
inline FoundBackend look_for(const std::string& name,
                             const std::vector<std::string>& environments) {
  if (!is_native(name)) return {nullptr, why_not_native(name)};
  const auto folders = folders_for(name, environments);
  const std::string path = library_in(folders, name);
  if (path.empty())
    return {nullptr, "not found: no " + library_name(name) + " in " + joined(folders, ", ") +
                         "; install it from a clone: pip install ./packages/tensor-ops-" + name +
                         ", and name the folder of the library in " + kPathVariable};
  const Loaded loaded = load_library(path, name);
  return {std::make_unique<Backend>(name, path, loaded.table, loaded.problem)};
}

}  // namespace tensor_ops::backend::detail
