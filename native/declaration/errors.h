// The errors that calls throw. The binding raises the Python exceptions of the same names.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "declaration/shared.h"

namespace tensor_ops {

// Becomes a RuntimeError, unless it is one of those below.
struct TENSOR_OPS_SHARED Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct TENSOR_OPS_SHARED TypeError : Error {
  using Error::Error;
};
struct TENSOR_OPS_SHARED ValueError : Error {
  using Error::Error;
};
struct TENSOR_OPS_SHARED MemoryError : Error {
  using Error::Error;
};
// No device, or no instruction set, that can be used.
struct TENSOR_OPS_SHARED UnavailableError : Error {
  using Error::Error;
};

// A Python exception is already set.
struct TENSOR_OPS_SHARED PythonError : std::exception {};

// The parts, written one after another.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

// The words word(element) of all elements, with separators between: "a, b, c".
template <class Range, class Word>
std::string joined(const Range& range, Word word, const char* separator = ", ") {
  std::string all;
  for (const auto& each : range) all += text(all.empty() ? "" : separator, word(each));
  return all;
}

// "(2, 3)"
template <class Extent>
std::string shape_text(int dims, const Extent* shape) {
  std::string result = "(";
  for (int d = 0; d < dims; ++d)
    result += text(shape[d], d + 1 < dims ? ", " : dims == 1 ? "," : "");
  return result + ")";
}

}  // namespace tensor_ops
