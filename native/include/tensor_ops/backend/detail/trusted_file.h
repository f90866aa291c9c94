// A file that decides which code runs: refused where others can write it, as
// tensor_ops/files/trusted.py does.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "tensor_ops/backend/detail/paths.h"
#include "tensor_ops/backend/detail/text.h"
#include "tensor_ops/backend/errors.h"

#ifdef _WIN32
#include <fstream>
#include <iterator>
#else
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace tensor_ops::backend::detail {

// In bytes. A larger file was named by mistake.
constexpr std::size_t kLargestFile = std::size_t{1} << 24;

inline std::string error_text(int number) { return std::generic_category().message(number); }

[[noreturn]] inline void refuse_size(const std::string& path) {
  throw ConfigError(path + ": is larger than " + std::to_string(kLargestFile) +
                    " bytes, so it is something else");
}

#ifdef _WIN32

inline std::string read_trusted(const std::string& path, const std::vector<std::string>&,
                                const std::string&) {
  std::ifstream file(path_of(path), std::ios::binary);
  if (!file) throw ConfigError(path + ": cannot be read");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() > kLargestFile) refuse_size(path);
  return text;
}

#else

// Refuses a file that others can write: they would decide which code runs here. The owner of the
// Python environments decides that anyway.
inline void check_owner(const std::string& path, const struct stat& status,
                        const std::vector<std::string>& environments,
                        const std::string& otherwise) {
  const std::string name = shell_quoted(path);
  bool is_trusted = status.st_uid == 0 || status.st_uid == ::geteuid();
  for (const std::string& prefix : environments) {
    struct stat folder;
    if (::stat(prefix.c_str(), &folder) == 0 && S_ISDIR(folder.st_mode))
      is_trusted = is_trusted || folder.st_uid == status.st_uid;
  }
  if (!is_trusted)
    throw ConfigError(path + ": belongs to user " + std::to_string(status.st_uid) +
                      ", who is neither you nor root nor the owner of the Python environment; " +
                      "take it over with 'sudo chown " + std::to_string(::geteuid()) + " " + name +
                      "', or " + otherwise);
  if ((status.st_mode & 022) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%o", static_cast<unsigned>(status.st_mode & 0777));
    throw ConfigError(path + ": others can write it (its mode is " + mode +
                      "); take that from them with 'chmod go-w " + name + "'");
  }
}

// The text of a file that nobody else can write. `environments` are folders whose owners are
// trusted too; `otherwise` is what the user can do besides taking the file over.
inline std::string read_trusted(const std::string& path,
                                const std::vector<std::string>& environments,
                                const std::string& otherwise) {
  struct File {
    int descriptor;
    ~File() {
      if (descriptor >= 0) ::close(descriptor);
    }
  };
  const auto fail = [&path] { throw ConfigError(path + ": cannot be read: " + error_text(errno)); };
  // Opening a pipe that has replaced the file in the meantime would wait for a writer.
  const File file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  struct stat status;
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0) fail();
  check_owner(path, status, environments, otherwise);
  std::string text;
  std::vector<char> block(1 << 16);
  for (;;) {
    const ssize_t count = ::read(file.descriptor, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    if (count == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(count));
    if (text.size() > kLargestFile) refuse_size(path);
  }
}

#endif

}  // namespace tensor_ops::backend::detail
