// The exceptions of the C++ interface. Their messages are those of the backend's library, or say
// what was given, what was expected and what to do.
#pragma once

#include <stdexcept>
#include <string>

#include "tensor_ops/abi.h"

namespace tensor_ops::backend {

// Any error; by itself one of a driver or of the system.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A dtype, a missing argument, or a device of the wrong kind.
struct TypeError : Error {
  using Error::Error;
};
// A shape, a number, an overlap or a null pointer.
struct ValueError : Error {
  using Error::Error;
};
// An environment variable, a backend.json or the name of a backend is wrong.
struct ConfigError : ValueError {
  using ValueError::ValueError;
};
struct MemoryError : Error {
  using Error::Error;
};
// A backend that is forced or called cannot run here, or none can.
struct UnavailableError : Error {
  using Error::Error;
};

// Throws the exception of a call's status; returns where the call has succeeded.
inline void throw_unless_ok(tensor_ops_status status, const tensor_ops_error& error) {
  switch (status) {
    case TENSOR_OPS_OK:
      return;
    case TENSOR_OPS_TYPE_ERROR:
      throw TypeError(error.message);
    case TENSOR_OPS_VALUE_ERROR:
      throw ValueError(error.message);
    case TENSOR_OPS_MEMORY_ERROR:
      throw MemoryError(error.message);
    case TENSOR_OPS_UNAVAILABLE:
      throw UnavailableError(error.message);
    default:
      throw Error(error.message);
  }
}

}  // namespace tensor_ops::backend
