// The process: its id, environment variables, and the user's folders.
#pragma once

#include <cstdlib>
#include <string>

#include "tensor_ops/backend/detail/paths.h"

#ifndef _WIN32
#include <pwd.h>
#include <unistd.h>
#endif

namespace tensor_ops::backend::detail {

// A variable's value, empty where it is not set. Variables are the caller's; so a program that runs
// with the rights of another user (setuid) must not load what they name, and sees none.
inline std::string variable(const char* name) {
#if defined(_WIN32)
  const std::wstring wide_name = wide(name);
  std::wstring found(::GetEnvironmentVariableW(wide_name.c_str(), nullptr, 0), L'\0');
  const DWORD length =
      ::GetEnvironmentVariableW(wide_name.c_str(), found.data(), static_cast<DWORD>(found.size()));
  found.resize(length < found.size() ? length : 0);  // else it is not set, or has just grown
  return narrow(found);
#else
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
  const char* value = ::secure_getenv(name);
#else
  const char* value = ::getuid() == ::geteuid() ? std::getenv(name) : nullptr;
#endif
  return value == nullptr ? "" : value;
#endif
}

#ifdef _WIN32
constexpr char kFolderSeparator = ';';

// Windows has no fork() that a process would have to be told apart by.
inline long process_id() { return 0; }

inline bool is_absolute(const std::string& path) {
  if (path.size() >= 3 && path[1] == ':' && is_slash(path[2])) return true;
  return path.size() >= 2 && is_slash(path[0]) && is_slash(path[1]);
}

// Of "C:\\", whose slash is no separator at the end of a folder's name.
inline std::size_t root_length(const std::string& path) {
  return path.size() > 1 && path[1] == ':' ? 3 : 1;
}

inline std::string user_config_folder() { return variable("LOCALAPPDATA"); }

#else
constexpr char kFolderSeparator = ':';

inline long process_id() { return static_cast<long>(::getpid()); }

inline bool is_absolute(const std::string& path) { return !path.empty() && path[0] == '/'; }

inline std::size_t root_length(const std::string&) { return 1; }

// Without the slash at its end; "~" where the user has none.
inline std::string home_folder() {
  std::string home = variable("HOME");
  if (home.empty()) {
    const passwd* user = ::getpwuid(::getuid());
    home = user == nullptr ? "~" : user->pw_dir;
  }
  while (!home.empty() && home.back() == '/') home.pop_back();
  return home;
}

// The folder of the user's settings, as platformdirs has it.
inline std::string user_config_folder() {
  const std::string named = variable("XDG_CONFIG_HOME");
  if (is_absolute(named)) return named;
#ifdef __APPLE__
  return home_folder() + "/Library/Application Support";
#else
  return home_folder() + "/.config";
#endif
}
#endif

// A path in a folder, with one slash between the two.
inline std::string in_folder(const std::string& folder, const std::string& name) {
  if (folder.empty() || is_slash(folder.back())) return folder + name;
  return folder + "/" + name;
}

}  // namespace tensor_ops::backend::detail
