// The place of backend.json, if there is one: tensor_ops/config/location.py.
#pragma once

#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tensor_ops/backend/detail/environment.h"
#include "tensor_ops/backend/detail/paths.h"
#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/detail/trusted_file.h"
#include "tensor_ops/backend/errors.h"

namespace tensor_ops::backend::detail {

constexpr char kConfigVariable[] = "TENSOR_OPS_CONFIG";

// The part of a missing path that is a link to nowhere, empty if none is.
inline std::string dangling_link(std::filesystem::path path) {
  std::error_code error;
  for (;;) {
    const auto status = std::filesystem::symlink_status(path, error);
    if (std::filesystem::status_known(status) && std::filesystem::exists(status)) break;
    const auto parent = path.parent_path();
    if (parent == path || parent.empty()) return "";
    path = parent;
  }
  const bool is_link = std::filesystem::is_symlink(std::filesystem::symlink_status(path, error));
  return is_link && !std::filesystem::exists(path, error) ? text_of(path) : "";
}

// Returns false only if there is nothing of that name. Anything else that is there, such as a
// folder, is an error, and so is what cannot be found out.
inline bool file_exists(const std::string& path, const std::string& named_by = "") {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path_of(path), error);
  if (status.type() == fs::file_type::not_found) {
    const std::string link = dangling_link(path_of(path));
    if (link.empty()) return false;
    throw ConfigError(named_by + path + ": cannot be looked at: " + link + " is a link to " +
                      in_quotes(text_of(fs::read_symlink(path_of(link), error))) +
                      ", which is not there; bring that back or remove the link");
  }
  if (!fs::status_known(status)) {
    const bool may_not = error == std::errc::permission_denied;
    throw ConfigError(named_by + path + ": cannot be looked at: " + error.message() + "; " +
                      (may_not ? "give this process the right to, or " : "") + "set " +
                      kConfigVariable + " to a file that this process may read");
  }
  if (fs::is_regular_file(status)) return true;
  const char* kind = fs::is_directory(status) ? "a folder"
                     : fs::is_fifo(status)    ? "a pipe"
                                              : "a device or a socket";
  // It may have been named by mistake, as /dev/null or a folder, so do not suggest to delete it.
  const std::string remedy = named_by.empty()
                                 ? "put a file in its place"
                                 : std::string("name a file or unset ") + kConfigVariable;
  throw ConfigError(named_by + path + ": is " + kind + ", no regular file; " + remedy);
}

// The absolute path of what the variable names, as of when it was first read with this value.
inline std::string absolute_path(const std::string& named) {
  static std::mutex mutex;
  static auto* const paths =
      new std::map<std::string, std::string>;  // never freed: exit may use it
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = paths->find(named);
  if (found != paths->end()) return found->second;
  if (is_absolute(named)) return (*paths)[named] = named;
  std::error_code error;
  // Not a normalised path, which would resolve "link/.." without following the link.
  const std::string here = text_of(std::filesystem::current_path(error));
  if (error)
    throw ConfigError(std::string(kConfigVariable) + " names " + in_quotes(named) +
                      ", but the current directory is gone; give an absolute path");
  return (*paths)[named] = in_folder(here, named);
}

// The file in use, if there is one, and what there is to warn of.
struct ConfigLocation {
  std::optional<std::string> path = std::nullopt;
  std::string warning = {};
};

// TENSOR_OPS_CONFIG goes first, then etc/tensor-ops in the Python environments that the program has
// asked about, then the user's folder of settings. The current directory is never searched.
inline ConfigLocation find_config(const std::vector<std::string>& environments) {
  const std::string named = variable(kConfigVariable);
  if (!named.empty()) {
    const std::string path = absolute_path(named);
    const std::string by = std::string(kConfigVariable) + " names " + in_quotes(named);
    if (file_exists(path, by + ", ")) return {path};
    throw ConfigError(by +
                      ", which is not a file; create it with 'tensor-ops configure_backend "
                      "--config " +
                      shell_quoted(named) + " --backend=auto' or unset " + kConfigVariable);
  }
  for (const std::string& prefix : environments) {
    const std::string path = in_folder(prefix, "etc/tensor-ops/backend.json");
    if (file_exists(path)) return {path};
  }
  const std::string folder = user_config_folder();
  if (!is_absolute(folder)) return {};  // this user has no home
  const std::string path = in_folder(folder, "tensor-ops/backend.json");
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path_of(path), error);
  if (!std::filesystem::status_known(status) && error == std::errc::permission_denied)
    return {std::nullopt, path + ": cannot be looked at: " + error.message() +
                              "; it is taken for none. To be sure which configuration holds, set " +
                              kConfigVariable + " to a file or HOME to this user's"};
  return file_exists(path) ? ConfigLocation{path} : ConfigLocation{};
}

}  // namespace tensor_ops::backend::detail
