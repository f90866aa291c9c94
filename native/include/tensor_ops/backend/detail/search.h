// The search for the libraries of backends.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor_ops/backend/backend.h"
#include "tensor_ops/backend/detail/environment.h"
#include "tensor_ops/backend/detail/library.h"
#include "tensor_ops/backend/detail/paths.h"
#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/errors.h"
#include "tensor_ops/backend/names.h"

// Further folders, with colons between them (on Windows semicolons): our CMake package sets it.
#ifndef TENSOR_OPS_BACKEND_FOLDERS
#define TENSOR_OPS_BACKEND_FOLDERS ""
#endif

namespace tensor_ops::backend::detail {

constexpr char kPathVariable[] = "TENSOR_OPS_BACKEND_PATH";

// The folders that a variable or definition lists. A relative one is an error: which code runs must
// not depend on the current directory.
inline std::vector<std::string> listed_folders(const std::string& list, const char* named_by) {
  std::vector<std::string> folders;
  for (std::string folder : parts(list, kFolderSeparator)) {
    while (folder.size() > root_length(folder) && is_slash(folder.back())) folder.pop_back();
    if (folder.empty()) continue;
    if (!is_absolute(folder))
      throw ConfigError(std::string(named_by) + " names the folder " + in_quotes(folder) +
                        ", which is relative to the current directory; give its whole path");
    folders.push_back(folder);
  }
  return folders;
}

// A Python's site-packages in the environment at a prefix, the newest Python's first.
inline std::vector<std::string> site_packages(const std::string& prefix) {
  std::vector<std::string> found;
#ifdef _WIN32
  found.push_back(in_folder(prefix, "Lib\\site-packages"));
#else
  std::vector<std::pair<long, std::string> > by_version;
  for (const char* lib : {"lib", "lib64"}) {
    std::error_code error;
    std::filesystem::directory_iterator entry(path_of(in_folder(prefix, lib)), error), end;
    for (; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.rfind("python3.", 0) != 0 || name.size() > 12) continue;
      if (name.size() == 8 || std::isdigit(static_cast<unsigned char>(name[8])) == 0) continue;
      by_version.emplace_back(-std::stol(name.substr(8)),
                              in_folder(entry->path().string(), "site-packages"));
      // Debian's own Python has them here.
      by_version.emplace_back(by_version.back().first,
                              in_folder(entry->path().string(), "dist-packages"));
    }
  }
  std::stable_sort(by_version.begin(), by_version.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& each : by_version) found.push_back(each.second);
#endif
  return found;
}

// Folders that may hold the library of a backend, the first first: those of
// TENSOR_OPS_BACKEND_PATH, that of the program or library that this code was compiled into, those
// that it was compiled with, and the package's in the Python environments.
inline std::vector<std::string> folders_for(const std::string& name,
                                            const std::vector<std::string>& environments) {
  const std::string package = "tensor_ops_" + name;
  std::vector<std::string> folders = listed_folders(variable(kPathVariable), kPathVariable);
  // The address of something that is in the same module as the caller.
  static const char here = 0;
  const std::string beside = folder_of_module(&here);
  if (!beside.empty()) folders.push_back(beside);
  for (const std::string& folder :
       listed_folders(TENSOR_OPS_BACKEND_FOLDERS, "TENSOR_OPS_BACKEND_FOLDERS"))
    folders.push_back(folder);
  for (const std::string& prefix : environments)
    for (const std::string& site : site_packages(prefix))
      folders.push_back(in_folder(site, package));
  // Packages of one environment are side by side: tensor_ops_cuda beside tensor_ops_cpp.
  std::vector<std::string> all;
  for (const std::string& folder : folders) {
    all.push_back(folder);
    const std::filesystem::path path = path_of(folder);
    if (text_of(path.filename()).rfind("tensor_ops_", 0) == 0)
      all.push_back(in_folder(text_of(path.parent_path()), package));
  }
  return once_each(all);
}

// The library of a backend, empty if there is none.
inline std::string library_in(const std::vector<std::string>& folders, const std::string& name) {
  for (const std::string& folder : folders) {
    const std::string path = in_folder(folder, library_name(name));
    std::error_code error;
    const auto status = std::filesystem::symlink_status(path_of(path), error);
    if (std::filesystem::status_known(status) && std::filesystem::exists(status)) return path;
  }
  return "";
}

// The result of a search: a backend, available or not, or the reason why there is none.
struct FoundBackend {
  std::unique_ptr<Backend> backend;  // null where there is no library
  std::string not_found = {};        // why that is

  bool has_table() const { return backend != nullptr && backend->abi() != nullptr; }
  // The library is there and cannot be used, on whatever machine.
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
