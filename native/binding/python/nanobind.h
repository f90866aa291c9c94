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

// An argument that is text in a str or, as UTF-8, in bytes.
struct Text : std::string {};

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

template <>
struct nanobind::detail::type_caster<tensor_ops::Text> {
  NB_TYPE_CASTER(tensor_ops::Text, const_name("str | bytes"))

  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    if (PyBytes_Check(source.ptr())) {
      value.assign(PyBytes_AsString(source.ptr()),
                   static_cast<std::size_t>(PyBytes_Size(source.ptr())));
      return true;
    }
    Py_ssize_t size = 0;
    const char* const utf8 =
        PyUnicode_Check(source.ptr()) ? PyUnicode_AsUTF8AndSize(source.ptr(), &size) : nullptr;
    if (utf8) value.assign(utf8, static_cast<std::size_t>(size));
    if (!utf8) PyErr_Clear();
    return utf8 != nullptr;
  }
};
