// nanobind, with the conversions that the binding uses.
#pragma once

#include "binding/python/python.h"
//
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

namespace tensor_ops {

// Throws PythonError for null.
nanobind::object object_of(Owned owned);

// The text of str(object). Throws python_error.
std::string text_of(nanobind::handle object);

// dict(object). Throws python_error.
nanobind::dict dict_from(nanobind::handle object);

// An argument that the function itself looks at: nanobind alone takes no None.
inline auto any_argument(const char* name) { return nanobind::arg(name).none(); }

// An exception of a Python function that C++ has called. What it says begins with the exception's
// type and message, where nanobind's own begins with a traceback.
class CallbackError final : public nanobind::python_error {
 public:
  explicit CallbackError(nanobind::python_error&& error);
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

// call() with the GIL, for a thread that has let go of it. Throws CallbackError.
template <class Call>
void call_back(Call call) {
  const AcquiredGil acquired;
  try {
    call();
  } catch (nanobind::python_error& error) {
    throw CallbackError(std::move(error));
  }
}

}  // namespace tensor_ops
