#include "python/host_device.h"

#include <cstdlib>
#include <optional>
#include <string>

#include "binding/python/python.h"
#include "declaration/errors.h"
#include "launch/device.h"

namespace tensor_ops {
namespace {

#ifdef Py_GIL_DISABLED

// os.environ has what Python has set. getenv() must not run beside its setenv().
std::optional<std::string> variable() {
  const Owned os(PyImport_ImportModule("os"));
  const Owned environ(os ? PyObject_GetAttrString(os.get(), "environ") : nullptr);
  const Owned value(environ ? PyObject_CallMethod(environ.get(), "get", "s", kDeviceVariable)
                            : nullptr);
  if (!value) throw PythonError();
  if (value.get() == Py_None) return std::nullopt;
  const char* text = PyUnicode_AsUTF8AndSize(value.get(), nullptr);
  if (!text) throw PythonError();
  return text;
}

#else

// Python calls setenv() with the GIL.
std::optional<std::string> variable() {
  const char* text = std::getenv(kDeviceVariable);
  if (!text) return std::nullopt;
  return text;
}

#endif

}  // namespace

int chosen_host_device() {
  const std::optional<std::string> text = variable();
  return host_device(text ? text->c_str() : nullptr);
}

bool is_host_device_chosen() { return !variable().value_or("").empty(); }

}  // namespace tensor_ops
