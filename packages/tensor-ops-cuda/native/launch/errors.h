// Errors of a call, thrown before any work and translated to Python exceptions by the binding.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tensor_ops {

struct TypeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ValueError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct MemoryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// There is no device to run on, or none that can be used: RuntimeError.
struct UnavailableError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The Python error indicator is already set.
struct PythonError : std::exception {};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

}  // namespace tensor_ops
