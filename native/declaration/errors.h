// The errors that calls throw. The binding raises the Python exceptions of the same names.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tensor_ops {

// Becomes a RuntimeError, unless it is one of those below.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct TypeError : Error {
  using Error::Error;
};
struct ValueError : Error {
  using Error::Error;
};
struct MemoryError : Error {
  using Error::Error;
};
// No device, or no instruction set, that can be used.
struct UnavailableError : Error {
  using Error::Error;
};

// A Python exception is already set.
struct PythonError : std::exception {};

// The parts, written one after another.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

}  // namespace tensor_ops
